"""Special tokens in texts: who is found, and who never is."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_vocabularies import MakeTokenizer, Token, byte_tokens

from ingot.errors import TokenizerError
from ingot.tokenizer import Tokenizer, TokenType

CONTROL, USER_DEFINED, UNKNOWN = TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN
SPECIAL: list[Token] = [
    ("<unk>", UNKNOWN),
    ("<s>", CONTROL),
    ("</s>", CONTROL),
    ("<|end|>", CONTROL),
    ("ab", USER_DEFINED),
    ("bcd", USER_DEFINED),
    ("<<", CONTROL),
    ("<<<", USER_DEFINED),
    ("\n", USER_DEFINED),
    ("\n\n\n", USER_DEFINED),
    ("\t", CONTROL),
    ("\t\t", USER_DEFINED),
]
TOKENS: list[Token] = [*SPECIAL, *byte_tokens()]
TEXTS = [token if isinstance(token, str) else token[0] for token in TOKENS]


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("llama", TOKENS, add_space_prefix=False, add_bos_token=False)


def slow_special(
    text: str,
    parse_special: bool,
    plain: Sequence[tuple[int, int]] = (),
    stripping: bool = False,
) -> list[str]:
    """Names of tokens: longest first, each from the left, in what is left."""
    rows = sorted(SPECIAL, key=lambda row: -len(row[0]))
    pieces: list[tuple[int, str] | str] = [(0, text)]  # a place and text, or a token
    for name, type in rows:
        if type is not USER_DEFINED and not parse_special:
            continue
        left: list[tuple[int, str] | str] = []
        for piece in pieces:
            if isinstance(piece, str):
                left.append(piece)
                continue
            start, rest = piece
            at = 0
            while (at := rest.find(name, at)) >= 0:
                place = start + at
                blocked = any(a < place + len(name) and place < b for a, b in plain if a < b)
                if blocked and type is not USER_DEFINED:
                    at += 1
                    continue
                left += [(start, rest[:at]), name]
                start, rest, at = place + len(name), rest[at + len(name) :], 0
                if stripping and name not in ("<unk>", "<s>"):
                    kept = rest.lstrip(" \t\n\v\f\r")
                    start, rest = start + len(rest) - len(kept), kept
            left.append((start, rest))
        pieces = left
    names = []
    for piece in pieces:
        names += [piece] if isinstance(piece, str) else [f"<0x{b:02X}>" for b in piece[1].encode()]
    # The escaped space has no token here either.
    escaped = [f"<0x{byte:02X}>" for byte in "▁".encode()]
    return [name for one in names for name in (escaped if one == "<0x20>" else [one])]


PARTS = st.sampled_from([*(row[0] for row in SPECIAL), "<", "a", "b", "cd", " ", "\n\n", "é", "s>"])
MIXED = st.lists(PARTS, max_size=12).map("".join)


@given(MIXED, st.booleans())
def test_longest_first_then_from_the_left(tokenizer: Tokenizer, text: str, asked: bool) -> None:
    names = [TEXTS[id] for id in tokenizer.encode(text, parse_special=asked)]
    assert names == slow_special(text, asked)


def test_the_longer_token_wins_over_the_earlier_one(tokenizer: Tokenizer) -> None:
    assert [TEXTS[id] for id in tokenizer.encode("abcd")] == ["<0x61>", "bcd"]


@given(MIXED, st.lists(st.integers(0, 40), max_size=8).map(sorted))
def test_control_tokens_are_not_found_in_plain_spans(
    tokenizer: Tokenizer, text: str, places: list[int]
) -> None:
    places = [min(place, len(text)) for place in places]
    plain = list(pairwise(places))[::2]
    ids = tokenizer.encode(text, parse_special=True, plain_spans=plain)
    assert [TEXTS[id] for id in ids] == slow_special(text, True, plain)


def test_a_span_of_the_whole_text_is_as_not_asking(tokenizer: Tokenizer) -> None:
    text = "é<s>x<|end|>\n<<<"
    spans = [(0, len(text))]
    assert tokenizer.encode(text, parse_special=True, plain_spans=spans) == tokenizer.encode(text)
    data = text.encode()
    spans = [(0, len(data))]
    assert tokenizer.encode(data, parse_special=True, plain_spans=spans) == tokenizer.encode(text)


def test_a_token_half_in_a_span_is_not_found(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("é<s>", parse_special=True, plain_spans=[(3, 4)])
    assert TEXTS.index("<s>") not in ids
    ids = tokenizer.encode("é<s>x", parse_special=True, plain_spans=[(4, 5), (0, 1), (2, 2)])
    assert TEXTS.index("<s>") in ids


@pytest.mark.parametrize("spans", [[(0, 9)], [(2, 1)], [(-1, 1)], [(0,)], ["ab"], [(0, "x")]])
def test_spans_that_do_not_fit_are_refused(tokenizer: Tokenizer, spans: list) -> None:
    with pytest.raises(TokenizerError):
        tokenizer.encode("text", parse_special=True, plain_spans=spans)


def test_plain_text_never_becomes_a_control_token(make_tokenizer: MakeTokenizer) -> None:
    steps: list[Token] = ["<", "s", ">", "<s", ("<s>", CONTROL, 5.0)]
    spm = make_tokenizer("llama", steps, add_space_prefix=False, add_bos_token=False)
    assert spm.encode("<s>") == [3, 2]
    merges = ["< s", "<s >"]
    for pre in ("bloom", "llama-bpe"):
        bpe = make_tokenizer("gpt2", steps, merges=merges, pre=pre, add_bos_token=False)
        assert 4 not in bpe.encode("<s>")
        assert bpe.encode("<s>", parse_special=True) == [4]
    rwkv = make_tokenizer("rwkv", steps)
    assert rwkv.encode("<s>") == [3, 2]
    assert rwkv.encode("<s>", parse_special=True) == [4]


def test_long_runs_of_user_defined_tokens(tokenizer: Tokenizer) -> None:
    three, one = TEXTS.index("\n\n\n"), TEXTS.index("\n")
    assert tokenizer.encode("\n" * 300_001) == [three] * 100_000 + [one]
    assert tokenizer.encode("<" * 300_000) == [TEXTS.index("<<<")] * 100_000


@given(MIXED)
def test_phi_3_swallows_white_space_behind_special_tokens(phi: Tokenizer, text: str) -> None:
    names = [TEXTS[id] for id in phi.encode(text, parse_special=True)]
    assert names == slow_special(text, True, stripping=True)


@pytest.fixture(scope="module")
def phi(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer(
        "llama", TOKENS, add_space_prefix=False, add_bos_token=False, name="Phi-3 mini"
    )


def test_jina_swallows_white_space_before_its_mask(make_tokenizer: MakeTokenizer) -> None:
    tokens: list[Token] = ["a", "Ġ", ("<mask>", CONTROL), ("<s>", CONTROL)]
    made = make_tokenizer("gpt2", tokens, merges=["a a"], pre="jina-v2-de")
    assert made.encode("a  <mask> a <s>", parse_special=True) == [0, 2, 1, 0, 1, 3]


def test_xlm_roberta_swallows_white_space_before_its_mask(make_tokenizer: MakeTokenizer) -> None:
    """As its vocabulary has it in transformers, whichever network reads it."""
    tokens: list[Token] = ["a", "\u2581", ("<mask>", CONTROL), ("<s>", CONTROL)]
    made = make_tokenizer("t5", tokens, add_space_prefix=False, add_eos_token=False)
    assert made.encode("a  <mask> a <s>", parse_special=True) == [0, 2, 1, 0, 1, 3]
