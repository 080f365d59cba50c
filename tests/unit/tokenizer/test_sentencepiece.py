"""SentencePiece BPE beside a few lines that do it slowly."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_vocabularies import MakeTokenizer, Token, byte_tokens

from ingot.tokenizer import Tokenizer, TokenType

NORMAL = TokenType.NORMAL
WORDS = {
    "a": -10, "b": -11, "é": -12, "▁": -13, "ab": -3, "ba": -3, "▁a": -2, "aa": -4, "aaaa": -1,
    "▁ab": -2.5, "bé": -6, "éa": -6, "▁▁": -5, "▁▁▁▁": -4.5, "b▁": -7, "中文": -8, "中": -20,
    "aba": 0.0, "bb": -0.0, "▁\n": -9,
}  # fmt: skip
TOKENS: list[Token] = [
    ("<unk>", TokenType.UNKNOWN),
    ("<s>", TokenType.CONTROL),
    ("</s>", TokenType.CONTROL),
    *byte_tokens(),
    *((text, NORMAL, score) for text, score in WORDS.items()),
]
TEXTS = [token if isinstance(token, str) else token[0] for token in TOKENS]


def slow_sentencepiece(text: str, scores: dict[str, float] = WORDS) -> list[int]:
    symbols = list(text.replace(" ", "▁"))
    while True:
        pairs = [left + right for left, right in pairwise(symbols)]
        places = [i for i, pair in enumerate(pairs) if pair in WORDS]
        if not places:
            break
        best = max(places, key=lambda i: (scores[pairs[i]], -i))
        symbols[best : best + 2] = [pairs[best]]
    ids = []
    for symbol in symbols:
        names = [symbol] if symbol in WORDS else [f"<0x{byte:02X}>" for byte in symbol.encode()]
        ids += [TEXTS.index(name) for name in names]
    return ids


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("llama", TOKENS, add_space_prefix=False)


ALPHABET = "abé 中文\nx▁"


# Long ones take another way through the pairs.
LONG = st.text("ab", min_size=101, max_size=250)  # no place to cut


@given(st.one_of(st.text(ALPHABET), LONG))
def test_pairs_join_by_score_then_from_the_left(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text, add_special=False) == slow_sentencepiece(text)


@given(st.one_of(st.text("ab ", max_size=30), LONG))
def test_equal_scores_join_from_the_left(unscored: Tokenizer, text: str) -> None:
    expected = slow_sentencepiece(text, dict.fromkeys(WORDS, 0.0))
    assert unscored.encode(text, add_special=False) == expected


@pytest.fixture(scope="module")
def unscored(make_tokenizer: MakeTokenizer) -> Tokenizer:
    tokens = [token if isinstance(token, str) else token[:2] for token in TOKENS]
    return make_tokenizer("llama", tokens, add_space_prefix=False)


@given(st.text())
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    decoded = tokenizer.decode(tokenizer.encode(text, add_special=False))
    assert decoded == text.replace("▁", " ")


@given(st.binary())
def test_all_bytes_come_back(tokenizer: Tokenizer, data: bytes) -> None:
    ids = tokenizer.encode(data, add_special=False)
    assert tokenizer.decode_bytes(ids).replace("▁".encode(), b" ") == data.replace(
        "▁".encode(), b" "
    )


def test_a_byte_that_starts_no_character_swallows_what_follows(tokenizer: Tokenizer) -> None:
    names = [TEXTS[id] for id in tokenizer.encode(b"\xe4 ab", add_special=False)]
    # E4 takes the first two bytes of the escaped space with it.
    assert names == ["<0xE4>", "<0xE2>", "<0x96>", "<0x81>", "ab"]


def test_space_prefix(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer("llama", TOKENS)
    bos, word = 1, TEXTS.index("▁ab")
    assert tokenizer.encode("ab") == [bos, word]
    assert tokenizer.encode("") == [bos]
    assert tokenizer.encode("ab</s>ab", parse_special=True) == [bos, word, 2, word]
    assert tokenizer.encode(" ab") == [bos, *slow_sentencepiece("  ab")]


def test_long_runs(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a" * 200_000, add_special=False) == [TEXTS.index("aaaa")] * 50_000
    assert tokenizer.encode(" " * 200_000, add_special=False) == [TEXTS.index("▁▁▁▁")] * 50_000
    unknown = [TEXTS.index(f"<0x{byte:02X}>") for byte in "🦙".encode()]
    assert tokenizer.encode("🦙" * 50_000, add_special=False) == unknown * 50_000


def test_bytes_without_a_token_are_unknown(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(
        "llama", [("<unk>", TokenType.UNKNOWN), "a"], add_bos_token=False, add_space_prefix=False
    )
    assert tokenizer.encode("aé") == [1, 0, 0]


def test_missing_scores_count_as_equal(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(
        "llama", ["a", "aa", "b", "ab"], add_bos_token=False, add_space_prefix=False
    )
    assert tokenizer.encode("aab") == [1, 2]
