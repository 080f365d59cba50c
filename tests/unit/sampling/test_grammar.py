"""Structured output: every text follows its grammar, or the grammar is refused."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from grammar_runs import accepts, write

from ingot.errors import GrammarError
from ingot.sampling import ChainBuilder, Grammar, SamplingParams
from ingot.sampling.grammar.schema_defaults import LARGEST_INTEGER, LONGEST_STRING
from ingot.sampling.grammar.vocabulary import ExactEncoder, TokenTexts
from ingot.tokenizer import Tokenizer, TokenType
from unit.tokenizer.small_vocabularies import byte_tokens, write_vocabulary

SCHEMAS: list[dict[str, object]] = [
    {"type": "integer", "minimum": -5, "maximum": 250},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[ab]{2}-[0-9]+$"},
    {"enum": ["red", "green", 3, None]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "null"}, {"const": "only"}]},
    {
        "$defs": {
            "n": {
                "type": "object",
                "properties": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
                "required": ["n"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/n",
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:40])
@pytest.mark.parametrize("forced", [False, True])
def test_json_follows_its_schema(
    builder: ChainBuilder, letters: Tokenizer, schema: dict[str, object], forced: bool
) -> None:
    texts = [
        write(builder, letters, Grammar.json_schema(schema), seed, forced=forced)
        for seed in range(4)
    ]
    complete = [text for text in texts if text is not None]
    assert complete
    for text in complete:
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(
    "pattern", [r"[a-c]{3}x*", r"^\d{1,4}(\.\d+)?$", r"(ab|cd)+/e", r"[^a-z]{1,3}é"]
)
def test_texts_match_their_regular_expression(
    builder: ChainBuilder, letters: Tokenizer, pattern: str
) -> None:
    for seed in range(4):
        text = write(builder, letters, Grammar.regex(pattern), seed)
        assert text is not None
        assert re.fullmatch(pattern, text)


def test_choices(builder: ChainBuilder, letters: Tokenizer) -> None:
    options = ["yes", "no", 'may"be', "yes, sir", "né\n"]
    grammar = Grammar.choices(options)
    found = {write(builder, letters, grammar, seed, end_bias=0.0) for seed in range(60)}
    assert found == set(options)


def test_lark(builder: ChainBuilder, letters: Tokenizer) -> None:
    grammar = Grammar.lark('start: "(" (start | "x")* ")"')
    texts = [write(builder, letters, grammar, seed) for seed in range(5)]
    complete = [text for text in texts if text is not None]
    assert complete
    for text in complete:
        rest = text.replace("x", "")
        while "()" in rest:
            rest = rest.replace("()", "")
        assert rest == ""


def test_gbnf(builder: ChainBuilder, letters: Tokenizer) -> None:
    grammar = Grammar.gbnf('root ::= [0-9] ("+" root)?')
    for seed in range(5):
        text = write(builder, letters, grammar, seed)
        assert text is not None
        assert re.fullmatch(r"\d(\+\d)*", text)


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        ({"type": "integer"}, str(LARGEST_INTEGER)),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, f'{{"n":{-LARGEST_INTEGER}'),
        ({"type": "string"}, '"' + "a" * LONGEST_STRING),
        ({"type": "string", "maxLength": LONGEST_STRING + 9}, '"' + "a" * (LONGEST_STRING + 9)),
    ],
    ids=["integer", "object", "string", "limit of its own"],
)
def test_values_of_schemas_without_limits_end(
    single_bytes: Tokenizer, schema: dict[str, object], longest: str
) -> None:
    builder = ChainBuilder(single_bytes)
    state = builder.grammar_state(Grammar.json_schema(schema))
    for token in single_bytes.encode(longest, add_special=False):
        state.accept(token)
    one_more = single_bytes.encode(longest[-1], add_special=False)[0]
    assert not state.mask()[one_more >> 5] >> (one_more & 31) & 1


def test_a_lazy_grammar_rules_only_behind_its_marker(single_bytes: Tokenizer) -> None:
    builder = ChainBuilder(single_bytes)
    grammar = Grammar.regex("[0-9]{2};").after("go ", "run:")
    for text, expected in (
        ("", True), ("any text", True), ("go 12;", True), ("x run:34; and on", True),
        ("go 12;go 34;", True), ("go 1", False), ("go x", False), ("a go 123", False),
        ("go 12; go x", False), ("gogo 77;", True),
    ):  # fmt: skip
        assert accepts(builder, single_bytes, grammar, text) is expected, text


def test_a_lazy_grammar_may_be_triggered_by_a_control_token(
    builder: ChainBuilder, letters: Tokenizer
) -> None:
    state = builder.grammar_state(Grammar.json_schema({"type": "integer"}).after("<call>"))
    letter, digit = letters.encode("p", add_special=False) + letters.encode("7", add_special=False)

    def allowed(token: int) -> bool:
        return bool(state.mask()[token >> 5] >> (token & 31) & 1)

    assert allowed(letter)
    assert allowed(263)
    state.accept(letter)
    state.accept(263)
    assert not allowed(letter)
    assert allowed(digit)


def test_forced_tokens_are_those_a_choice_would_give(
    builder: ChainBuilder, letters: Tokenizer
) -> None:
    schema = {
        "type": "object",
        "properties": {"abc": {"const": 12}},
        "required": ["abc"],
        "additionalProperties": False,
        "x-guidance": {"whitespace_flexible": False},
    }
    grammar = Grammar.json_schema(schema)
    chain = builder.build(SamplingParams(seed=1, grammar=grammar))
    tokens = chain.forced_tokens()
    assert letters.decode(tokens) == '{"abc":12}'
    assert letters.encode('{"abc":12}', add_special=False) == tokens
    chain.accept_all(tokens)
    assert chain.is_complete
    assert chain.forced_tokens() == []


def test_only_the_end_is_left_where_a_grammar_may_stop(
    builder: ChainBuilder, letters: Tokenizer
) -> None:
    chain = builder.build(SamplingParams(temperature=0, grammar=Grammar.regex("a+")))
    chain.accept(letters.encode("a", add_special=False)[0])
    row = np.zeros(264, np.float32)
    row[262] = 1.0
    assert not chain.is_complete
    assert chain.apply(row).token == 262


@pytest.mark.parametrize("order", [("top_k", "grammar"), ("grammar", "top_k"), ("top_k",)])
def test_the_mask_holds_at_any_place_of_the_chain(
    builder: ChainBuilder, letters: Tokenizer, order: tuple[str, ...]
) -> None:
    params = SamplingParams(seed=2, top_k=264, samplers=order, grammar=Grammar.regex("[xyz]"))
    allowed = set(letters.encode("x", add_special=False)) | {
        letters.encode(c, add_special=False)[0] for c in "yz"
    }
    for seed in range(20):
        row = np.random.default_rng(seed).normal(size=264).astype(np.float32)
        assert builder.build(params).apply(row).token in allowed


def test_copies_and_resets_keep_their_place(builder: ChainBuilder, letters: Tokenizer) -> None:
    x, y, z = (letters.encode(c, add_special=False)[0] for c in "pqr")
    chain = builder.build(SamplingParams(temperature=0, grammar=Grammar.regex("pqr")))
    row = np.zeros(264, np.float32)
    assert chain.apply(row.copy()).token == x
    chain.accept(x)
    copy = chain.clone()
    chain.accept(y)
    assert chain.apply(row.copy()).token == z
    assert copy.apply(row.copy()).token == y
    chain.reset()
    assert chain.apply(row.copy()).token == x


def test_masks_may_be_prepared_in_another_thread(builder: ChainBuilder, letters: Tokenizer) -> None:
    schema = Grammar.json_schema({"type": "array", "items": {"type": "string"}})
    ahead = builder.build(SamplingParams(seed=5, grammar=schema))
    plain = ahead.clone()
    random = np.random.default_rng(0)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(60):
            waiting = pool.submit(ahead.prepare)
            row = random.normal(size=264).astype(np.float32)
            token = plain.apply(row.copy()).token
            assert ahead.apply(row).token == token
            waiting.result()
            if token in letters.eog_ids or plain.is_complete:
                break
            plain.accept(token)
            ahead.accept(token)


def test_a_token_that_does_not_fit_is_an_error(builder: ChainBuilder, letters: Tokenizer) -> None:
    chain = builder.build(SamplingParams(grammar=Grammar.regex("abc")))
    with pytest.raises(GrammarError, match="grammar failed"):
        chain.accept(letters.encode("x", add_special=False)[0])


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (Grammar.json_schema({"type": "strng"}), "json_schema grammar cannot be used: .*strng"),
        (Grammar.json_schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (Grammar.json_schema({"not": {"type": "string"}}), "not"),
        (Grammar.json_schema({"type": "string", "format": "color"}), "color"),
        (Grammar.json_schema({"type": "integer", "minimum": 3, "maximum": 2}), "Unsatisfiable"),
        (Grammar.json_schema({"$ref": "https://example.org/x"}), "example.org"),
        (Grammar.regex("(?=a)b"), "regex grammar cannot be used: .*look"),
        (Grammar.regex("a("), "regex grammar cannot be used"),
        (Grammar.lark("start: nothing"), "nothing"),
        (Grammar.lark("begin: /a/"), "start"),
        (Grammar.gbnf("root ::= x"), "'x', which is not defined"),
    ],
    ids=lambda value: value.source[:30] if isinstance(value, Grammar) else "",
)
def test_what_cannot_be_honoured_is_refused(
    builder: ChainBuilder, grammar: Grammar, reason: str
) -> None:
    with pytest.raises(GrammarError, match=f"(?s){reason}"):
        builder.build(SamplingParams(grammar=grammar))


# Every kind of vocabulary

CONTROL, UNKNOWN = TokenType.CONTROL, TokenType.UNKNOWN
LETTERS = [chr(c) for c in range(0x20, 0x7F)]


def made(folder: Path, kind: str) -> Tokenizer:
    specials = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    settings: dict[str, object] = {"eos_token_id": 2, "bos_token_id": 1, "unknown_token_id": 0}
    if kind == "llama":
        words = [("▁" + c if c != " " else "▁", TokenType.NORMAL, -2.0) for c in LETTERS]
        singles = [(c, TokenType.NORMAL, -1.0) for c in LETTERS if c != " "]
        pieces = [("▁{", TokenType.NORMAL, 0.0), ('{"', TokenType.NORMAL, 0.0)]
        tokens = [*specials, *byte_tokens(), *words[1:], words[0], *singles, *pieces[1:]]
    elif kind == "t5":
        tokens = [*specials, ("▁", TokenType.NORMAL, -1.0)]
        tokens += [(c, TokenType.NORMAL, -2.0) for c in LETTERS if c != " "]
    elif kind == "bert":
        tokens = [*specials, *(f"▁{c}" for c in LETTERS[1:]), *LETTERS[1:]]
        settings |= {"seperator_token_id": 2}
    else:
        tokens = [*specials, *(f"\\x{ord(c):02x}" if c in "\\'\"" else c for c in LETTERS)]
    return Tokenizer.from_gguf(write_vocabulary(folder / f"{kind}.gguf", kind, tokens, settings))


@pytest.mark.parametrize("kind", ["llama", "t5", "bert", "rwkv"])
@pytest.mark.parametrize("forced", [False, True])
def test_grammars_work_with_every_kind_of_vocabulary(
    tmp_path: Path, kind: str, forced: bool
) -> None:
    tokenizer = made(tmp_path, kind)
    builder = ChainBuilder(tokenizer)
    pattern = r"name: [a-z]{2,4} \([0-9]+\)"
    for seed in range(3):
        text = write(builder, tokenizer, Grammar.regex(pattern), seed, forced=forced)
        assert text is not None
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("kind", ["llama", "t5", "bert", "rwkv"])
def test_bytes_become_tokens_of_exactly_these_bytes(tmp_path: Path, kind: str) -> None:
    tokenizer = made(tmp_path, kind)
    encoder = ExactEncoder(tokenizer, TokenTexts(tokenizer))
    for text in (b"a", b'{"name": 1}', b" two blanks", b"x y"):
        ids = encoder.encode(text)
        assert tokenizer.decode_bytes(ids) == text
        assert not any(tokenizer.is_control(id) for id in ids)


@pytest.mark.parametrize("name", ["llama-spm", "gpt-2", "qwen2", "phi-3", "deepseek-coder"])
def test_real_vocabularies(shared: Path, name: str) -> None:
    tokenizer = Tokenizer.from_gguf(shared / "tokenizers" / f"{name}.gguf")
    encoder = ExactEncoder(tokenizer, TokenTexts(tokenizer))
    for text in (b'{"name": "J\xc3\xb6rg"}', b" leading", b"in the middle\n\n", "日本".encode()):
        assert tokenizer.decode_bytes(encoder.encode(text)) == text


def test_a_type_is_no_schema() -> None:
    with pytest.raises(GrammarError, match=r"the JSON schema is not valid JSON: .*type"):
        Grammar.json_schema(int)


def test_a_vocabulary_without_an_end_is_refused(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "no_end.gguf", "rwkv", ["a", "b"], {})
    with pytest.raises(GrammarError, match="end-of-text token"):
        ChainBuilder(Tokenizer.from_gguf(path)).build(SamplingParams(grammar=Grammar.regex("a")))


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *((TokenType.NORMAL, size) for size in (1000, 1001, 1024, 1025, 70_000)),
        *((TokenType.CONTROL, size) for size in (1000, 1001, 1024)),  # longer ones are refused
    ],
)
def test_tokens_of_any_length(kind: TokenType, size: int, tmp_path: Path) -> None:
    """A hostile vocabulary can have tokens that are longer than llguidance can take."""
    tokens = [*byte_tokens(), ("</s>", TokenType.CONTROL), ("x" * size, kind), ("y" * size, kind)]
    path = write_vocabulary(tmp_path / "v.gguf", "llama", tokens, {"eos_token_id": 256})
    tokenizer = Tokenizer.from_gguf(path)
    text = write(ChainBuilder(tokenizer), tokenizer, Grammar.regex("[a-f]+"), seed=1)
    assert text is not None
    assert re.fullmatch("[a-f]+", text)
