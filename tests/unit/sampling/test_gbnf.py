"""GBNF to Lark: the same language, checked text by text against a plain recognizer."""

from collections.abc import Mapping
from functools import cache
from itertools import product

import pytest
from grammar_runs import accepts
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.errors import GrammarError
from ingot.sampling import ChainBuilder, Grammar
from ingot.sampling.grammar.gbnf import to_lark
from ingot.sampling.grammar.gbnf.expressions import (
    Characters,
    Choice,
    ControlToken,
    Expression,
    Reference,
    Repeat,
    Sequence,
)
from ingot.sampling.grammar.gbnf.follow_sets import first_byte, first_bytes
from ingot.sampling.grammar.gbnf.parse import parse
from ingot.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def builder(single_bytes: Tokenizer) -> ChainBuilder:
    return ChainBuilder(single_bytes)


def recognizes(rules: Mapping[str, Expression], text: str) -> bool:
    """Whether a grammar has a text: all ways, with a bound on calls that read nothing."""

    @cache
    def ends(expression: Expression, start: int, depth: int) -> frozenset[int]:
        if depth > 12:
            return frozenset()
        match expression:
            case Characters(ranges):
                here = start < len(text) and any(a <= ord(text[start]) <= b for a, b in ranges)
                return frozenset({start + 1} if here else ())
            case Reference(name):
                return ends(rules[name], start, depth + 1)
            case Choice(options):
                return frozenset().union(*(ends(option, start, depth) for option in options))
            case Sequence(parts):
                places = frozenset({start})
                for part in parts:
                    places = frozenset().union(*(ends(part, place, depth) for place in places))
                return places
            case Repeat(part, least, most):
                found: set[int] = set() if least else {start}
                places, count = frozenset({start}), 0
                while places and (most is None or count < most) and count < len(text) + least + 1:
                    places = frozenset().union(*(ends(part, place, depth) for place in places))
                    count += 1
                    if count >= least:
                        found |= places
                return frozenset(found)
            case ControlToken():
                return frozenset()

    return len(text) in ends(Reference("root"), 0, 0)


def check_language(builder: ChainBuilder, single_bytes: Tokenizer, source: str, length: int) -> int:
    rules = parse(source)
    grammar = Grammar.gbnf(source)
    found = 0
    for size in range(length + 1):
        for text in map("".join, product("abc", repeat=size)):
            expected = recognizes(rules, text)
            assert accepts(builder, single_bytes, grammar, text) == expected, (source, text)
            found += expected
    return found


@pytest.mark.parametrize(
    "source",
    [
        'root ::= "a" root "b" | "ab" | ""',
        'root ::= [a-b]+ "b" | "c"',
        'root ::= "(" root ")" | [ab]+ "b" | "c" root',
        'root ::= x x\nx ::= "a" x "c" | "ab" | "a"',
        'root ::= ("a" | "ab" | "b" root) ("c" | "bc")',
        'root ::= "ab" "c" root? | [a-c] "b"',
        'root ::= item ("c" item)*\nitem ::= word | "a" item "a"\nword ::= [ab]+',
        'root ::= w root w | "c"\nw ::= ("a" w)?',
        'root ::= w "b" | "c" root "c"\nw ::= "a" w | "b" | ""',
        'root ::= ("a"{2} | "b"{1,2} | "c"{0,1} root){1,3}',
        'root ::= [^a] root | "a"',
        "root ::= . root | [a]",
        'root ::= "b"* (root "c")? "a"+',
        'root ::= "a"? root? "b" # a comment\n\n',
        'root ::= (\n  "a"\n  | "b" root\n)',
        # Texts of one terminal begin with another's, and what follows does not tell them apart.
        'root ::= "a" root "b" | "ab" root "c" | "b" | "c"',
        'root ::= ("a" | "ab" | "bb" | "c" root "c")+',
        'root ::= x root "b" | x\nx ::= "a" | "ab"',
        'root ::= root | "a" root | "b"',
    ],
)
def test_the_language_stays_the_same(
    builder: ChainBuilder, single_bytes: Tokenizer, source: str
) -> None:
    assert check_language(builder, single_bytes, source, 5) > 0


@st.composite
def grammars(draw: st.DrawFn) -> str:
    """Small grammars of two rules, which may call each other and themselves."""
    atom = st.sampled_from(['"a"', '"b"', '"ab"', '"bc"', "[ab]", "[^a]", '""', "x", "root"])

    def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, inner).map(lambda p: f"({p[0]} {p[1]})"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]} | {p[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
                lambda p: f"({p[0]}){p[1]}"
            ),
        )

    body = st.recursive(atom, combined, max_leaves=5)
    # An end without recursion in each rule, so that both have texts.
    return f'root ::= ({draw(body)}) | "c"\nx ::= ({draw(body)}) | "a"'


@settings(max_examples=60, deadline=None, derandomize=True)
@given(source=grammars())
def test_any_grammar_keeps_its_language(
    builder: ChainBuilder, single_bytes: Tokenizer, source: str
) -> None:
    check_language(builder, single_bytes, source, 3)


def test_strings_are_one_terminal() -> None:
    lark = to_lark(
        r"""
        root ::= "{" ws (string ":" ws value)? "}" ws
        value ::= root | string | [0-9]+ ws
        string ::= "\"" ([^"\\] | "\\" ["\\n])* "\"" ws
        ws ::= ([ \t\n] ws)?
        """
    )
    rules = [line for line in lark.splitlines() if line[0].islower()]
    assert len(rules) == 2, lark  # root and value; all else is in terminals
    assert to_lark("root ::= [0-9]+ ws\nws ::= [ ]*").startswith("start: T0\n")


def test_characters_of_several_bytes(builder: ChainBuilder, single_bytes: Tokenizer) -> None:
    # ü and é begin with the same byte: the lexer could not tell where é+ ends.
    source = 'root ::= "é"+ "ü" | "(" root ")"'
    grammar = Grammar.gbnf(source)
    for text, expected in (
        ("éü", True),
        ("éééü", True),
        ("(éü)", True),
        ("é", False),
        ("ü", False),
    ):
        assert accepts(builder, single_bytes, grammar, text) is expected
    assert [first_byte(ord(c)) for c in "a\x7fé€😀"] == [c.encode()[0] for c in "a\x7fé€😀"]
    assert first_bytes(((0x61, 0x62), (0xE9, 0xE9))) == 1 << 0x61 | 1 << 0x62 | 1 << 0xC3


def test_escapes_and_ranges() -> None:
    rules = parse(r'root ::= "\x41\u00e9\U0001F600\n\"\\" [\]\-a-c^] [^\x00-\x1f]')
    assert isinstance(rules["root"], Sequence)
    first, second, third = rules["root"].parts
    assert first == Sequence(
        tuple(Characters(((ord(c), ord(c)),)) for c in 'A\u00e9\U0001f600\n"\\')
    )
    assert second == Characters(((0x2D, 0x2D), (0x5D, 0x5E), (0x61, 0x63)))
    assert third == Characters(((0x20, 0x10FFFF),))


def test_control_tokens(builder: ChainBuilder, single_bytes: Tokenizer) -> None:
    grammar = Grammar.gbnf('root ::= "a" <[257]> "b" | "c" root')
    state = builder.grammar_state(grammar)
    a, b = single_bytes.encode("ab", add_special=False)
    for token in (a, 257, b):
        assert state.mask()[token >> 5] >> (token & 31) & 1
        state.accept(token)
    assert state.is_complete


@pytest.mark.parametrize(
    "source",
    [
        # 2**40 texts, all empty; a chain of rules; long alternatives; nested repetitions
        "\n".join(
            ["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40)), 'r40 ::= ""']
        ),
        "\n".join(
            ["root ::= r0", *(f"r{i} ::= r{i + 1}" for i in range(900)), 'r900 ::= "a" | r0 "b"']
        ),
        "root ::= " + " | ".join(f'"({i}" root? ")"' for i in range(60)),
        'root ::= (((("a"{1,9}){1,9}){1,9}){1,9}){1,9} root?',
    ],
    ids=["doubling", "chain", "alternatives", "repetitions"],
)
def test_grammars_meant_to_blow_up_are_converted_all_the_same(source: str) -> None:
    assert to_lark(source).startswith("start: ")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("root ::= " + "(" * 200 + '"a"' + ")" * 200, "nested parentheses"),
        ("\n".join(f'r{i} ::= "a"' for i in range(1001)), "at most 1000 rules"),
        ("", "no rule named 'root'"),
        ('x ::= "a"', "no rule named 'root'"),
        ("root ::= x", "'root' uses 'x', which is not defined"),
        ('root ::= "a', '" is missing'),
        ("root ::= [a", "] is missing"),
        ("root ::= []", "empty"),
        ("root ::= [b-a]", "'b' to 'a' is empty"),
        ('root ::= ("a"', r"'\)' is missing"),
        ('root ::= "a")', "at the end of its line"),
        ('root ::= "a"{2,1}', "2,1"),
        ('root ::= "a"{x}', "repetition"),
        ('root ::= "a"{9999}', "at most 2000 repetitions"),
        ('root = "a"', "'::=' is missing"),
        ('root ::= "a"\nroot ::= "b"', "line 2 .* defined twice"),
        (r'root ::= "\q"', r"\\q is not an escape sequence"),
        (r'root ::= "\xzz"', "not a character"),
        ("root ::= <think>", "by its id"),
        ('root ::= !"a"', "expected"),
    ],
)
def test_what_is_no_gbnf_is_refused(source: str, reason: str) -> None:
    with pytest.raises(GrammarError, match=reason):
        to_lark(source)
