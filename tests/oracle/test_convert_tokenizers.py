"""Vocabularies made with the `tokenizers` library, converted: the same ids for the same texts."""

import json
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from checkpoints import CONFIG, write_llama, write_safetensors
from checkpoints import llama_tensors as tensors_of_llama
from ingot.convert.conversion import plan
from ingot.tokenizer import Tokenizer

pytestmark = pytest.mark.oracle
tokenizers = pytest.importorskip("tokenizers")

TEXTS = [
    "Hello, world! How's it going?",
    "The quick brown fox jumps over 13 lazy dogs, 1234567 times.",
    "def f(x):\n    return x ** 2\n\n\nprint(f(3))",
    "Größe, naïve café, Ελληνικά, русский текст, 日本語のテキスト, 한국어",
    "emoji 🙂🙃 and tabs\tand   spaces  ",
    "I'LL WE'VE don't They're",
    " leading space",
    "a",
    "",
]
CORPUS = [text for text in TEXTS for _ in range(20)] + [Path(__file__).read_text()]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SIZE = 700


def byte_level(pattern: str | None, *, digits: bool = False):
    models, pre, trainers = tokenizers.models, tokenizers.pre_tokenizers, tokenizers.trainers
    made = tokenizers.Tokenizer(models.BPE())
    steps = []
    if digits:
        steps.append(pre.Digits(individual_digits=True))
    if pattern:
        steps.append(pre.Split(tokenizers.Regex(pattern), "isolated"))
    steps.append(pre.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    made.pre_tokenizer = pre.Sequence(steps)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=["<|end|>"], initial_alphabet=pre.ByteLevel.alphabet()
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def sentencepiece():
    """As llama-2's: spaces are marked, unknown characters become bytes."""
    models, normalizers = tokenizers.models, tokenizers.normalizers
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, limit_alphabet=60
    )
    # SentencePiece does not merge over the beginnings of words.
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("\u2581", "merged_with_next")
    made.train_from_iterator(CORPUS, trainer)
    made.pre_tokenizer = None
    return made


def word_piece():
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=SIZE, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


KINDS = {
    "gpt-2": lambda: byte_level(None),
    "llama-3": lambda: byte_level(LLAMA3),
    "qwen-2": lambda: byte_level(LLAMA3.replace("{1,3}", "")),
    "digits": lambda: byte_level(None, digits=True),
    "sentencepiece": sentencepiece,
    "word pieces": word_piece,
}
NAMES = {"cls_token": "[CLS]", "sep_token": "[SEP]", "bos_token": "[CLS]", "unk_token": "[UNK]"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_ids(kind: str, tmp_path: Path) -> None:
    made = KINDS[kind]()
    folder = write_llama(tmp_path / "model")
    rows = made.get_vocab_size()
    tensors = tensors_of_llama()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = np.zeros((rows, CONFIG["hidden_size"]), "f4")
    write_safetensors(folder / "model.safetensors", tensors)
    made.save(str(folder / "tokenizer.json"))
    if kind == "word pieces":
        (folder / "tokenizer_config.json").write_text(json.dumps(NAMES))
    with plan(folder).open() as loader:
        ours = Tokenizer(loader.metadata)
        # Of word pieces, llama.cpp and this tokenizer do not take Hangul apart.
        for text in TEXTS if kind != "word pieces" else [t for t in TEXTS if t.isascii()]:
            expected = made.encode(text, add_special_tokens=False).ids
            found = ours.encode(text, add_special=False)
            assert list(found) == expected, text
            if kind not in ("sentencepiece", "word pieces"):
                assert ours.decode(found) == normalize("NFC", text)
