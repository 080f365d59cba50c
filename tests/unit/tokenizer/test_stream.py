"""Decoding piece by piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_vocabularies import MakeTokenizer, Token, byte_tokens

from ingot.errors import TokenizerError
from ingot.tokenizer import StreamDecoder, Tokenizer, TokenType

TOKENS: list[Token] = [
    ("<s>", TokenType.CONTROL),
    ("<unk>", TokenType.UNKNOWN),
    *byte_tokens(),
    "▁hello",
    "é",
    "🦙",
    ("<tag>", TokenType.USER_DEFINED),
    ("unused", TokenType.UNUSED),
]


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("llama", TOKENS, add_space_prefix=False, add_bos_token=False)


# Bytes of characters of every length, whole and cut, and anything else.
CHARACTERS = st.text("aé中🦙", max_size=6).map(lambda text: [2 + byte for byte in text.encode()])
IDS = st.lists(st.one_of(CHARACTERS, st.lists(st.integers(0, len(TOKENS) - 1), max_size=4))).map(
    lambda parts: [id for part in parts for id in part]
)


@given(IDS, st.booleans())
def test_the_pieces_are_the_whole(tokenizer: Tokenizer, ids: list[int], skip: bool) -> None:
    stream = StreamDecoder(tokenizer, skip_special=skip)
    pieces = [stream.push(id) for id in ids] + [stream.flush()]
    assert "".join(pieces) == tokenizer.decode(ids, skip_special=skip)


@given(st.text())
def test_no_character_is_split(tokenizer: Tokenizer, text: str) -> None:
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(2 + byte) for byte in text.encode()]
    assert [piece for piece in pieces if piece] == list(text)
    assert stream.flush() == ""


def test_bad_bytes_wait_until_they_are_known_to_be_bad(tokenizer: Tokenizer) -> None:
    stream = StreamDecoder(tokenizer)
    llama = "🦙".encode()
    assert [stream.push(2 + byte) for byte in llama[:3]] == ["", "", ""]
    assert stream.push(2 + ord("x")) == "\ufffdx"
    assert stream.push(2 + llama[0]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.push(2 + ord("y")) == "y"


def test_special_tokens_are_shown_or_skipped(tokenizer: Tokenizer) -> None:
    ids = [0, TOKENS.index("▁hello"), 1, 2 + ord("!")]
    assert tokenizer.decode(ids) == "<s> hello<unk>!"
    assert tokenizer.decode(ids, skip_special=True) == " hello!"
    skipping = StreamDecoder(tokenizer, skip_special=True)
    assert [skipping.push(id) for id in ids] == ["", " hello", "", "!"]


@pytest.mark.parametrize("id", [-1, len(TOKENS), 1 << 40, 1 << 80, "1", None, 1.5])
def test_what_is_no_id_is_refused(tokenizer: Tokenizer, id: object) -> None:
    with pytest.raises(TokenizerError):
        StreamDecoder(tokenizer).push(id)  # type: ignore[arg-type]
