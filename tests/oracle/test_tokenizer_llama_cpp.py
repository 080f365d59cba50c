"""Tokenizers against llama.cpp: the same ids for tens of thousands of hard texts.

The vocabularies in ../shared/tokenizers, the two real models, and small ones made here for the
kinds and pre-tokenizers that none of those has.

If a text is not valid UTF-8, the byte-level kinds and WordPiece read it as llama.cpp does: a byte
that begins no sequence becomes U+FFFD, overlong forms and surrogates count as the code point they
spell. Sequences above U+10FFFF end llama.cpp's process (an exception nobody catches); our rule for
them is the same as for any other bad byte, see `test_code_points_beyond_unicode`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from llama_cpp_peer import PeerRun, PeerVocabulary, Request, describe
from made_vocabularies import (
    PRE_TOKENIZERS,
    byte_letters,
    make_charsmap,
    make_unigram,
    with_pre_tokenizer,
    write_character_bpe,
    write_end_names,
    write_pairs,
    write_rwkv,
    write_sentencepiece,
    write_unigram,
)
from tokenizer_compare import differences, encode, report
from tokenizer_strings import texts

from ingot.tokenizer import StreamDecoder, Tokenizer

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        find_spec("llama_cpp") is None, reason="no peer: pip install llama-cpp-python==0.3.36"
    ),
]

SHARED = ("bert-bge", "deepseek-coder", "gpt-2", "llama-bpe", "llama-spm")
SHARED += ("mpt", "phi-3", "qwen2", "starcoder")
MODELS = ("smollm2", "gemma")
COUNT = 20_000
COUNT_MADE = 3_000
BYTE_LEVEL = 2  # llama.cpp's number for BPE vocabularies
SEED = 20_000

# One name of each group of which llama.cpp takes whichever its hash table gives first.
PLAIN_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>",
    "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>",
    "<｜end▁of▁sentence｜>", "[e~[", "<|end|>", "<|fim_prefix|>", "<|fim_suffix|>",
    "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
HARMONY_ENDS = ("<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "<|end|>")
TOOL_ENDS = ("<|tool_response>", "</s>", "<eos>", "<turn|>", "<fim_prefix>", "[PAD]", "<reponame>")


@dataclass(frozen=True, slots=True)
class Subject:
    """A vocabulary as both sides see it."""

    path: Path
    tokenizer: Tokenizer
    peer: PeerVocabulary
    texts: tuple[bytes, ...]


def open_both(path: Path, count: int = COUNT) -> Subject:
    peer = describe(path)
    special = [peer.texts[token] for token in peer.special()]
    made = tuple(texts(SEED, count, peer.pieces, special))
    return Subject(path, Tokenizer.from_gguf(path), peer, made)


@pytest.fixture(scope="module", params=(*SHARED, *MODELS))
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param in MODELS:
        return open_both(request.getfixturevalue(f"{request.param}_path"))
    return open_both(request.getfixturevalue("shared") / "tokenizers" / f"{request.param}.gguf")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("pairs") / "pairs.gguf"
    write_pairs(path)
    return path.read_bytes()


def check(subject: Subject, several: Sequence[bytes], folder: Path) -> None:
    """Compare the ids, half of the texts with special tokens parsed, half with them added."""
    requests = [
        Request(text, add_special=i % 4 < 2, parse_special=i % 2 == 0)
        for i, text in enumerate(several)
    ]
    found = differences(subject.tokenizer, subject.path, requests, folder)
    assert not found, report(subject.tokenizer, subject.path, found, folder)


def peer_ids(path: Path, several: list[bytes], folder: Path) -> list[list[int] | None]:
    with PeerRun([(path, [Request(text) for text in several])], folder) as peer:
        return peer.ids()


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_ids(subject: Subject, tmp_path: Path) -> None:
    several = subject.texts
    check(subject, several + several[1:], tmp_path)  # one further: each text read both ways


def test_ids_of_long_texts(subject: Subject, tmp_path: Path) -> None:
    several = list(subject.texts)
    random.Random(SEED).shuffle(several)
    long = [b" ".join(several[i : i + 250]) for i in range(0, len(several), 500)]
    assert max(map(len, long)) > 8_000
    check(subject, long, tmp_path)


def test_a_batch_gives_the_same_ids(subject: Subject) -> None:
    several = subject.texts[::4]
    alone = [subject.tokenizer.encode(text, parse_special=True) for text in several]
    assert subject.tokenizer.encode_batch(several, parse_special=True, threads=2) == alone


def test_decoding_gives_the_text_back(subject: Subject) -> None:
    """A few bytes have no token in some vocabularies; texts with them cannot be kept whole."""
    if subject.peer.kind != BYTE_LEVEL:
        pytest.skip("only byte-level vocabularies keep every text")
    tokenizer = subject.tokenizer
    vocabulary = set(subject.peer.texts)
    known = bytes(b for b, letter in enumerate(byte_letters()) if letter.encode() in vocabulary)
    valid = [
        text.decode() for text in subject.texts if is_utf8(text) and not text.translate(None, known)
    ]
    assert len(valid) > COUNT * 0.8
    lost = [
        (text, back)
        for text in valid
        for parse in (False, True)
        if (back := tokenizer.decode(tokenizer.encode(text, False, parse))) != text
    ]
    assert not lost, f"{len(lost)} texts come back changed, among them {lost[:3]!a}"


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = StreamDecoder(tokenizer)
    return "".join([stream.push(token) for token in ids]) + stream.flush()


def test_a_stream_gives_what_decoding_at_once_gives(subject: Subject) -> None:
    tokenizer = subject.tokenizer
    for text in subject.texts[::10]:
        assert streamed(tokenizer, ids := tokenizer.encode(text)) == tokenizer.decode(ids)
    rng = random.Random(SEED)
    for _ in range(1000):  # ids as no text gives them, with characters cut everywhere
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 30))]
        assert streamed(tokenizer, ids) == tokenizer.decode(ids)


def test_pieces(subject: Subject) -> None:
    tokenizer, pieces = subject.tokenizer, subject.peer.pieces
    assert tokenizer.vocab_size == len(pieces)
    wrong = [
        f"{token}: ours {ours!r}, llama.cpp {piece!r}"
        for token, piece in enumerate(pieces)
        if (ours := tokenizer.token_bytes(token)) != piece
    ]
    assert not wrong, f"{len(wrong)} tokens differ\n" + "\n".join(wrong[:10])


def test_special_ids(subject: Subject) -> None:
    tokenizer, peer = subject.tokenizer, subject.peer
    assert sorted(tokenizer.eog_ids) == peer.end_of_generation
    assert tokenizer.bos_id == (None if peer.bos < 0 else peer.bos)
    assert tokenizer.eos_id == (None if peer.eos < 0 else peer.eos)


def test_code_points_beyond_unicode(subject: Subject, tmp_path: Path) -> None:
    """The four bytes of such a sequence count as four bad bytes, which llama.cpp survives."""
    beyond = [b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf7\xbf\xbf\xbf"]
    around = [b"%s", b"a%s", b"%sb", b" %s 1", b"x%s\xf0\x9f\x98\x80", b"%s%s" % (b"%s", b"\xff")]
    made = [frame % sequence for frame in around for sequence in beyond]
    if subject.peer.kind == BYTE_LEVEL or "bert" in subject.path.name:
        same = [frame % b"\xff\xff\xff\xff" for frame in around for _ in beyond]
        assert peer_ids(subject.path, made[:1], tmp_path) == [None]
    else:
        same = made
    expected = peer_ids(subject.path, same, tmp_path)
    assert [encode(subject.tokenizer, Request(text)) for text in made] == expected


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_pre_tokenizer(name: str, pairs: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(with_pre_tokenizer(pairs, name))
    subject = open_both(path, COUNT_MADE)
    check(subject, subject.texts, tmp_path)


@pytest.mark.parametrize(
    "names", [PLAIN_ENDS, HARMONY_ENDS, TOOL_ENDS], ids=("plain", "calls", "tool")
)
def test_tokens_known_by_name(names: tuple[str, ...], tmp_path: Path) -> None:
    """What ends a generation, and what is found only when asked, whatever the file's types say.

    Where "<|end|>" does not end a generation llama.cpp finds it in every text; for us it stays a
    control token, which no text of a user becomes.
    """
    path = tmp_path / "names.gguf"
    write_end_names(path, names)
    subject = open_both(path, 0)
    test_special_ids(subject)
    kept = [name for name in names if name != "<|end|>" or names is not HARMONY_ENDS]
    written = [f"in {name}in{name}".encode() for name in kept]
    check(subject, written + written[1:], tmp_path)


@pytest.mark.parametrize(
    ("space_prefix", "add_bos", "add_eos"), [(True, True, False), (False, False, True)]
)
def test_sentencepiece(space_prefix: bool, add_bos: bool, add_eos: bool, tmp_path: Path) -> None:
    path = tmp_path / "spm.gguf"
    write_sentencepiece(path, space_prefix, add_bos, add_eos)
    subject = open_both(path)
    check(subject, subject.texts, tmp_path)
    test_pieces(subject)


def test_character_bpe(tmp_path: Path) -> None:
    path = tmp_path / "characters.gguf"
    write_character_bpe(path)
    subject = open_both(path)
    # Others may end llama.cpp's process.
    check(subject, [text for text in subject.texts if is_utf8(text)], tmp_path)
    test_pieces(subject)


@pytest.mark.parametrize("space_prefix", [True, False])
@pytest.mark.parametrize("merge_spaces", [True, False])
def test_unigram(space_prefix: bool, merge_spaces: bool, tmp_path: Path) -> None:
    path = tmp_path / "t5.gguf"
    write_unigram(path, make_unigram(), space_prefix=space_prefix, merge_spaces=merge_spaces)
    subject = open_both(path, COUNT_MADE)
    check(subject, subject.texts, tmp_path)


def test_unigram_normalized(tmp_path: Path) -> None:
    path = tmp_path / "t5.gguf"
    replacements = {"ﬁ": "fi", "Ａ": "A", "é": "e\u0301", "e\u0301": "é", "…": "...", "\u200b": ""}
    replacements |= {"\t": " ", "\u3000": " ", "\n": " ", "㎞": "km", "a\u0308": "ä", "th": "TH"}
    write_unigram(path, make_unigram(), make_charsmap(replacements), merge_spaces=True)
    subject = open_both(path)
    check(subject, subject.texts, tmp_path)


def test_rwkv(tmp_path: Path) -> None:
    path = tmp_path / "rwkv.gguf"
    write_rwkv(path)
    subject = open_both(path)
    # llama.cpp takes the text of this vocabulary's control token for the token, asked or not.
    check(subject, [text for text in subject.texts if b"<s>" not in text], tmp_path)
    test_pieces(subject)
