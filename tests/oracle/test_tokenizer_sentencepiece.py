"""The Unigram kind against SentencePiece itself: a model trained here, with NFKC as T5 has it."""

from pathlib import Path

import numpy as np
import pytest
from made_vocabularies import TokenType, Unigram, write_unigram
from tokenizer_strings import NUMBERS, WORDS, texts

from ingot.tokenizer import Tokenizer

pytestmark = pytest.mark.oracle

COUNT = 10_000
PIECES = [b"ing", "ﬁ".encode(), "①".encode()]
DOCS = Path(__file__).parents[2] / "docs"


def test_ids(tmp_path: Path) -> None:
    """Ligatures, wide letters, marks, all kinds of spaces; what is added around is left out."""
    peer = pytest.importorskip("sentencepiece", reason="no peer: pip install sentencepiece")
    lines = [line for page in sorted(DOCS.glob("*.md")) for line in page.read_text().splitlines()]
    lines += [*WORDS, *NUMBERS]
    peer.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(tmp_path / "spiece"),
        model_type="unigram",
        vocab_size=2000,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    model = peer.SentencePieceProcessor(model_file=str(tmp_path / "spiece.model"))
    write_unigram(tmp_path / "t5.gguf", vocabulary_of(model), charsmap_of(model), merge_spaces=True)
    ours = Tokenizer.from_gguf(tmp_path / "t5.gguf")
    wrong = []
    for text in texts(7, COUNT, PIECES, PIECES):
        plain = text.decode(errors="ignore")
        if "\0" in plain or any(name in plain for name in ("<pad>", "</s>", "<unk>")):
            continue
        mine, theirs = ours.encode(plain, add_special=False), model.encode(plain)
        if mine != theirs and not is_tie(model, mine, theirs):
            wrong.append(f"{plain!a}\n  ours          {mine}\n  SentencePiece {theirs}")
    assert not wrong, f"{len(wrong)} texts differ, among them\n" + "\n".join(wrong[:5])


def is_tie(model: object, mine: list[int], theirs: list[int]) -> bool:
    """Do both cuts have the same score but for rounding?

    SentencePiece adds the scores in single precision, llama.cpp and we in double: "00" and "000" in
    any order are one sum in our numbers and several in SentencePiece's.
    """
    ours, peers = (sum(model.get_score(id) for id in ids) for ids in (mine, theirs))  # type: ignore[attr-defined]
    rounding = len(theirs) * np.finfo(np.float32).eps * abs(peers)
    return bool(peers <= ours + 1e-9 * abs(ours) and ours - peers <= rounding)


def vocabulary_of(model: object) -> Unigram:
    """The pieces of a model, their scores and types."""
    ids = range(model.vocab_size())  # type: ignore[attr-defined]
    pieces = [model.id_to_piece(id) for id in ids]  # type: ignore[attr-defined]
    types = [TokenType.NORMAL] * len(pieces)
    types[:3] = [TokenType.CONTROL, TokenType.CONTROL, TokenType.UNKNOWN]
    return Unigram(pieces, [model.get_score(id) for id in ids], types)  # type: ignore[attr-defined]


def charsmap_of(model: object) -> bytes:
    """The map of the normalizer, in the model's protocol buffer: field 2 of field 3."""
    data = model.serialized_model_proto()  # type: ignore[attr-defined]
    return dict(fields(dict(fields(data))[3]))[2]


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """The fields of a protocol buffer that hold bytes, by number."""
    found, at = [], 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        match key & 7:
            case 0:
                number()
            case 2:
                size = number()
                found.append((key >> 3, data[at : at + size]))
                at += size
            case kind:
                at += {1: 8, 5: 4}[kind]
    return found
