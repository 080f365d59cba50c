"""WordPiece, Unigram and RWKV vocabularies."""

from itertools import combinations, pairwise
from struct import pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_vocabularies import MakeTokenizer, Token

from ingot.errors import TokenizerError
from ingot.tokenizer import Tokenizer, TokenType

CONTROL, UNKNOWN, NORMAL = TokenType.CONTROL, TokenType.UNKNOWN, TokenType.NORMAL
USER_DEFINED, UNUSED = TokenType.USER_DEFINED, TokenType.UNUSED

# WordPiece

PIECES: list[Token] = [
    ("[PAD]", CONTROL), ("[UNK]", UNKNOWN), ("[CLS]", CONTROL), ("[SEP]", CONTROL),
    "▁hello", "▁he", "llo", "▁wor", "ld", "▁,", "▁ae", "▁中", "▁文", "▁$", "▁ss", "▁ᄒ", "▁a",
]  # fmt: skip
WORDPIECE = {"bos_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1}


@pytest.fixture(scope="module")
def bert(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("bert", PIECES, **WORDPIECE)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello world", ["▁hello", "▁wor", "ld"]),
        ("HELLO,world", ["▁hello", "▁,", "▁wor", "ld"]),
        ("héllo", ["▁hello"]),
        ("he\u0301llo", ["▁hello"]),
        ("中文", ["▁中", "▁文"]),
        ("a$a", ["▁a", "▁$", "▁a"]),
        ("hellx a", ["[UNK]", "▁a"]),
        ("a\u200b\0\ufffda", ["[UNK]"]),  # format characters vanish, and "aa" is not a word here
        ("\x01a\x02", ["▁a"]),
        ("한", ["▁ᄒ"]),
        (" \u3000\t", []),
    ],
)
def test_word_piece(bert: Tokenizer, text: str, pieces: list[str]) -> None:
    texts = [token if isinstance(token, str) else token[0] for token in PIECES]
    expected = [texts.index(piece) for piece in pieces]
    assert bert.encode(text, add_special=False) == expected
    assert bert.encode(text) == [2, *expected, 3]


def test_word_piece_with_case_and_accents(make_tokenizer: MakeTokenizer) -> None:
    tokens: list[Token] = [*PIECES, "▁Hé"]
    cased = make_tokenizer("bert", tokens, **WORDPIECE, **{"normalizer.lowercase": False})
    assert cased.encode("Hé", add_special=False) == [len(PIECES)]
    assert cased.encode("hello", add_special=False) == [4]
    plain = make_tokenizer(
        "bert",
        tokens,
        **WORDPIECE,
        **{"normalizer.lowercase": False, "normalizer.strip_accents": True},
    )
    assert plain.encode("Hé", add_special=False) == [1]
    assert plain.encode("helló", add_special=False) == [4]


def test_word_piece_decodes_with_its_spaces(bert: Tokenizer) -> None:
    assert bert.decode(bert.encode("hello world"), skip_special=True) == " hello world"


def test_a_long_word_without_tokens_is_one_unknown(bert: Tokenizer) -> None:
    assert bert.encode("he" * 100_000, add_special=False) == [1]


# Unigram

SCORES = {
    "▁": -4.0,
    "a": -3.0,
    "b": -3.5,
    "ab": -5.0,
    "aba": -8.1,
    "▁a": -4.5,
    "ba": -4.25,
    "é": -6,
}
UNIGRAM: list[Token] = [
    ("<pad>", CONTROL),
    ("</s>", CONTROL),
    ("<unk>", UNKNOWN),
    *((text, NORMAL, score) for text, score in SCORES.items()),
    ("[x]", USER_DEFINED, -1.0),
    ("old", UNUSED, -0.5),
]
UNIGRAM_TEXTS = [token if isinstance(token, str) else token[0] for token in UNIGRAM]


@pytest.fixture(scope="module")
def unigram(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("t5", UNIGRAM)


def best_sum(text: str) -> float:
    """The highest sum of scores over all ways to cut, by trying them all."""
    sums = []
    for count in range(len(text)):
        for cuts in combinations(range(1, len(text)), count):
            places = [0, *cuts, len(text)]
            parts = [text[a:b] for a, b in pairwise(places)]
            if all(part in SCORES for part in parts):
                sums.append(sum(SCORES[part] for part in parts))
    return max(sums)


@given(st.text("ab ", min_size=1, max_size=9))
def test_unigram_finds_the_best_way(unigram: Tokenizer, text: str) -> None:
    ids = unigram.encode(text, add_special=False)
    spelled = text.replace(" ", "▁")
    assert "".join(UNIGRAM_TEXTS[id] for id in ids) == spelled
    assert sum(SCORES[UNIGRAM_TEXTS[id]] for id in ids) == pytest.approx(best_sum(spelled))


def test_unigram_unknown_characters_are_one_token(unigram: Tokenizer) -> None:
    a, unknown = UNIGRAM_TEXTS.index("a"), 2
    assert unigram.encode("a中文a中") == [a, unknown, a, unknown, 1]
    assert unigram.encode(b"a\xff\xfe") == [a, unknown, 1]


def test_unigram_takes_unused_tokens(unigram: Tokenizer) -> None:
    assert unigram.encode("old[x]", add_special=False) == [
        UNIGRAM_TEXTS.index("old"),
        UNIGRAM_TEXTS.index("[x]"),
    ]


def test_unigram_spaces(make_tokenizer: MakeTokenizer) -> None:
    def names(tokenizer: Tokenizer, text: str) -> list[str]:
        return [UNIGRAM_TEXTS[id] for id in tokenizer.encode(text, add_special=False)]

    prefixed = make_tokenizer("t5", UNIGRAM, add_space_prefix=True)
    assert names(prefixed, "a") == ["▁a"]
    merged = make_tokenizer("t5", UNIGRAM, add_space_prefix=True, remove_extra_whitespaces=True)
    assert names(merged, "  a   a ") == ["▁a", "▁a"]
    assert names(merged, " ") == []


def charsmap(replacements: dict[str, str]) -> np.ndarray:
    """SentencePiece's double-array trie, for single bytes to match."""
    units = [0] * 1024
    table = b""
    root = 256
    units[0] = root << 10
    for number, (wanted, replacement) in enumerate(sorted(replacements.items())):
        byte = ord(wanted)
        node, leaf = root ^ byte, 512 + number
        units[node] = (node ^ leaf) << 10 | 1 << 8 | byte
        units[leaf] = len(table) | 1 << 31
        table += replacement.encode() + b"\0"
    packed = pack(f"<{len(units)}I", *units)
    return np.frombuffer(pack("<I", len(packed)) + packed + table, np.uint8)


def test_unigram_normalizes_with_the_files_map(make_tokenizer: MakeTokenizer) -> None:
    mapped = make_tokenizer(
        "t5", UNIGRAM, precompiled_charsmap=charsmap({"Q": "ab", "R": "", "\t": " "})
    )
    plain = make_tokenizer("t5", UNIGRAM)
    assert mapped.encode("QaR\tb") == plain.encode("aba b")
    # What starts like a user-defined token is left alone.
    shielded = make_tokenizer("t5", UNIGRAM, precompiled_charsmap=charsmap({"[": "a"}))
    assert shielded.encode("[") == plain.encode("[")


@pytest.mark.parametrize("data", [b"\x10\0\0", b"\x10\0\0\0" + b"\0" * 8])
def test_a_cut_map_is_refused(make_tokenizer: MakeTokenizer, data: bytes) -> None:
    cut = make_tokenizer("t5", UNIGRAM, precompiled_charsmap=np.frombuffer(data, np.uint8))
    with pytest.raises(TokenizerError, match="cut short"):
        cut.encode("a")


# RWKV

RWKV: list[Token] = [
    ("<s>", CONTROL),
    *(repr(bytes([byte]))[2:-1] for byte in range(256)),
    "he", "hell", "hello", " world", "\\n\\n", "\\xe4\\xbd", "it\\'s",
]  # fmt: skip


@pytest.fixture(scope="module")
def rwkv(make_tokenizer: MakeTokenizer) -> Tokenizer:
    return make_tokenizer("rwkv", RWKV)


def test_rwkv_takes_the_longest_token(rwkv: Tokenizer) -> None:
    def id_of(text: str) -> int:
        return RWKV.index(text)

    assert rwkv.encode("hello world") == [id_of("hello"), id_of(" world")]
    assert rwkv.encode("helx") == [id_of("he"), id_of("l"), id_of("x")]
    assert rwkv.encode("it's\n\n") == [id_of("it\\'s"), id_of("\\n\\n")]
    assert rwkv.encode("你") == [id_of("\\xe4\\xbd"), id_of("\\xa0")]


@given(st.binary())
def test_rwkv_gives_all_bytes_back(rwkv: Tokenizer, data: bytes) -> None:
    assert rwkv.decode_bytes(rwkv.encode(data)) == data


def test_rwkv_without_a_token_for_a_byte(make_tokenizer: MakeTokenizer) -> None:
    assert make_tokenizer("rwkv", ["a", "abc"]).encode("abxa") == [0, 0]
    with_unknown = make_tokenizer("rwkv", ["?", "a"], unknown_token_id=0)
    assert with_unknown.encode("axa") == [1, 0, 1]
