"""Byte-level BPE beside a few lines that do it slowly."""

from itertools import pairwise
from random import Random

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import MakeTokenizer, byte_letters

from ingot.errors import TokenizerError
from ingot.tokenizer import Tokenizer, TokenType

LETTERS = byte_letters()
MERGES = [
    "a b", "b c", "ab c", "a a", "aa aa", "aaaa aaaa", "b b", "bb bb", "ab ab", "Ġ a", "Ġa b",
    "Ġ Ġ", "ĠĠ ĠĠ", "Ã ©", "a bc", "abc abc", "aa a", "b a", "ĠĠ Ġ", "c c", "abab ab",
]  # fmt: skip
TOKENS = [*LETTERS, *dict.fromkeys(merge.replace(" ", "") for merge in MERGES)]


def slow_bpe(word: str, merges: list[str], tokens: list[str]) -> list[int]:
    ranks = {tuple(merge.split(" ")): rank for rank, merge in reversed(list(enumerate(merges)))}
    symbols = [LETTERS[byte] for byte in word.encode()]
    while len(symbols) > 1:
        pairs = list(pairwise(symbols))
        best = min(range(len(pairs)), key=lambda i: ranks.get(pairs[i], len(merges)))
        if pairs[best] not in ranks:
            break
        symbols[best : best + 2] = ["".join(pairs[best])]
    return [tokens.index(symbol) for symbol in symbols]


@pytest.fixture(scope="module")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("gpt2", TOKENS, merges=MERGES, pre="gpt-2")


# One word each: letters only. Long ones take another way through the pairs.
@given(st.one_of(st.text("abc", max_size=30), st.text("abcé", min_size=101, max_size=250)))
def test_pairs_join_by_rank_then_from_the_left(tokenizer: Tokenizer, word: str) -> None:
    assert tokenizer.encode(word, add_special=False) == slow_bpe(word, MERGES, TOKENS)


@settings(max_examples=50)
@given(st.data())
def test_any_merges(make_tokenizer: MakeTokenizer, data: st.DataObject) -> None:
    pair = st.tuples(st.text("abc", min_size=1, max_size=3), st.text("abc", min_size=1, max_size=3))
    merges = [" ".join(both) for both in data.draw(st.lists(pair, max_size=20))]
    tokens = [*LETTERS, *dict.fromkeys(m.replace(" ", "") for m in merges)]
    made = make_tokenizer("gpt2", tokens, merges=merges, pre="gpt-2")
    for least, most in ((0, 12), (101, 150)):
        word = data.draw(st.text("abc", min_size=least, max_size=most))
        assert made.encode(word) == slow_bpe(word, merges, tokens)


@given(st.text())
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def lenient(data: bytes) -> bytes:
    """Shortest forms, and U+FFFD for each byte that starts no code point."""
    codes, at = [], 0
    while at < len(data):
        lead = data[at]
        size = next(
            (n for n, low in ((1, 0x80), (0, 0xC0), (2, 0xE0), (3, 0xF0), (4, 0xF8)) if lead < low),
            0,
        )
        tail = data[at + 1 : at + size]
        code = lead if size == 1 else lead & (0x7F >> size) if size else 0x110000
        for byte in tail:
            code = code << 6 | (byte & 0x3F) if byte & 0xC0 == 0x80 else 0x110000
        whole = size > 0 and len(tail) == size - 1 and code < 0x110000
        codes.append(code if whole else 0xFFFD)
        at += size if whole else 1
    return "".join(map(chr, codes)).encode("utf-8", "surrogatepass")


HEADS = st.sampled_from(
    [b"\xc3\xa9", b"\xc0\x80", b"\xe4\xbd\xa0", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
)


@given(st.lists(st.one_of(st.binary(max_size=3), HEADS)).map(b"".join))
def test_bytes_are_read_leniently(tokenizer: Tokenizer, data: bytes) -> None:
    assert tokenizer.decode_bytes(tokenizer.encode(data)) == lenient(data)


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"\xff", "\ufffd"),
        (b"a\x80b", "a\ufffdb"),
        (b"\xe4\xbd", "\ufffd\ufffd"),
        (b"\xc0\x80", "\0"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xf0\x9f\xa6\x99", "🦙"),
    ],
)
def test_what_bytes_are_taken_for(tokenizer: Tokenizer, data: bytes, seen: str) -> None:
    assert tokenizer.encode(data) == tokenizer.encode(seen)


def test_whole_words_come_before_merges(make_tokenizer: MakeTokenizer) -> None:
    tokens = [*LETTERS, "ab", "bc", "abc"]
    merges = ["b c", "a b"]  # never lead to abc
    by_merges = make_tokenizer("gpt2", tokens, merges=merges, pre="gpt-2")
    whole = make_tokenizer("gpt2", tokens, merges=merges, pre="llama-bpe", add_bos_token=False)
    assert by_merges.encode("abc") == [tokens.index("a"), tokens.index("bc")]
    assert whole.encode("abc") == [tokens.index("abc")]


def test_a_merge_to_what_is_no_token_gives_its_bytes(make_tokenizer: MakeTokenizer) -> None:
    made = make_tokenizer("gpt2", LETTERS, merges=["a b", "é a"], pre="gpt-2")
    assert made.encode("ab") == [LETTERS.index("a"), LETTERS.index("b")]


def test_bytes_without_a_token_are_left_out(make_tokenizer: MakeTokenizer) -> None:
    made = make_tokenizer("gpt2", ["a", "b"], merges=["a b"], pre="gpt-2")
    assert made.encode("xaxb") == [0, 1]


def test_long_words_take_the_same_way(tokenizer: Tokenizer) -> None:
    eight = TOKENS.index("aaaaaaaa")
    assert tokenizer.encode("a" * 400_000) == [eight] * 50_000
    four = TOKENS.index("ĠĠĠĠ")
    assert tokenizer.encode(" " * 400_000) == [four] * 100_000


def test_what_is_remembered_is_right(make_tokenizer: MakeTokenizer) -> None:
    """More different words and pairs than the caches hold."""
    rng = Random(0)
    characters = [chr(code) for code in range(0xC0, 0x800)]
    spelled = ["".join(LETTERS[byte] for byte in character.encode()) for character in characters]
    merges = [" ".join(both) for both in spelled]
    merges += [" ".join(rng.choices(spelled, k=2)) for _ in range(3000)]
    tokens = [*LETTERS, *dict.fromkeys(merge.replace(" ", "") for merge in merges)]
    made = make_tokenizer("gpt2", tokens, merges=merges, pre="bloom")
    words = ["".join(rng.choices(characters, k=rng.choice((3, 4, 5, 20)))) for _ in range(60_000)]
    made.encode_batch(words, threads=1)
    for word in words[::200]:
        plain = regex.sub(r"[।۔،]", "", word)  # the pattern cuts at these
        assert made.encode(plain) == slow_bpe(plain, merges, tokens)


def test_merges_are_needed(make_tokenizer: MakeTokenizer) -> None:
    with pytest.raises(TokenizerError, match="merges is missing"):
        make_tokenizer("gpt2", LETTERS, pre="gpt-2").encode("a")
    assert make_tokenizer("gpt2", LETTERS, pre="kimi-k2").encode("ab") == [
        LETTERS.index("a"),
        LETTERS.index("b"),
    ]


def test_framing(make_tokenizer: MakeTokenizer) -> None:
    tokens = [*LETTERS, ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
    a = LETTERS.index("a")
    ids = {"merges": ["a b"], "bos_token_id": 256, "eos_token_id": 257}
    assert make_tokenizer("gpt2", tokens, pre="gpt-2", **ids).encode("a") == [a]
    assert make_tokenizer("gpt2", tokens, pre="llama-bpe", **ids).encode("a") == [256, a]
    framed = make_tokenizer(
        "gpt2", tokens, pre="gpt-2", add_bos_token=True, add_eos_token=True, **ids
    )
    assert framed.encode("a") == [256, a, 257]
    assert framed.encode("") == [256, 257]
    assert framed.encode("a", add_special=False) == [a]
