"""The Unigram kind against the `tokenizers` package, which never saw the GGUF file."""

from pathlib import Path

import pytest
from made_vocabularies import SPACE, make_unigram, write_unigram
from tokenizer_strings import texts

from ingot.tokenizer import Tokenizer

pytestmark = pytest.mark.oracle

COUNT = 20_000


def test_ids(tmp_path: Path) -> None:
    """A text of spaces alone gets no further one in GGUF's reading, and is left out."""
    hf = pytest.importorskip("tokenizers", reason="no peer: pip install tokenizers")
    vocabulary = make_unigram()
    write_unigram(tmp_path / "t5.gguf", vocabulary)
    ours = Tokenizer.from_gguf(tmp_path / "t5.gguf")
    scored = list(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    peer = hf.Tokenizer(hf.models.Unigram(scored[:-2], unk_id=vocabulary.unknown))
    peer.normalizer = hf.normalizers.Sequence(
        [hf.normalizers.Prepend(SPACE), hf.normalizers.Replace(" ", SPACE)]
    )
    pieces = [piece.encode() for piece in vocabulary.pieces[3:-2]]
    several = [
        text.decode()
        for text in texts(7, COUNT, pieces, [b"ing"])
        if text == text.decode(errors="ignore").encode() and text.strip(b" ")
    ]
    assert len(several) > COUNT * 0.8
    expected = [encoding.ids for encoding in peer.encode_batch(several)]
    wrong = [
        f"{text!a}\n  ours       {mine}\n  tokenizers {theirs}"
        for text, theirs in zip(several, expected, strict=True)
        if (mine := ours.encode(text, add_special=False)) != theirs
    ]
    assert not wrong, f"{len(wrong)} texts differ, among them\n" + "\n".join(wrong[:5])
