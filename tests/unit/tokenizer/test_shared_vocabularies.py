"""Every vocabulary in ../shared/tokenizers gives the ids recorded beside it.

`NAME.gguf.inp` holds texts, `NAME.gguf.out` the ids of each text on one line. A text ends
before the newline of its separator line and may itself hold newlines or be empty; neither special
tokens are added nor their texts recognised.
"""

from pathlib import Path

import pytest

from ingot.tokenizer import Tokenizer

SEPARATOR = "\n__ggml_vocab_test__\n"
NAMES = (
    "bert-bge",
    "deepseek-coder",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "starcoder",
)


def cases(vocabulary: Path) -> list[tuple[str, list[int]]]:
    texts = Path(f"{vocabulary}.inp").read_bytes().decode().split(SEPARATOR)
    lines = Path(f"{vocabulary}.out").read_text("ascii").split("\n")
    assert texts.pop() == "", "the last text is closed by a separator"
    assert lines.pop() == "", "the last line of ids is closed by a newline"
    ids = [[int(token) for token in line.split()] for line in lines]
    return list(zip(texts, ids, strict=True))


def test_no_vocabulary_is_left_out(shared: Path) -> None:
    assert sorted(path.stem for path in (shared / "tokenizers").glob("*.gguf")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_ids(shared: Path, name: str) -> None:
    path = shared / "tokenizers" / f"{name}.gguf"
    tokenizer = Tokenizer.from_gguf(path)
    expected = cases(path)
    assert len(expected) == 46
    wrong = [
        f"{text!r}\n  ours     {ours}\n  recorded {ids}"
        for text, ids in expected
        if (ours := tokenizer.encode(text, add_special=False)) != ids
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_ids_as_one_batch(shared: Path, name: str) -> None:
    path = shared / "tokenizers" / f"{name}.gguf"
    texts, ids = zip(*cases(path), strict=True)
    assert Tokenizer.from_gguf(path).encode_batch(texts, add_special=False, threads=2) == list(ids)
