"""Vocabularies made with the `tokenizers` library, converted: the same ids for the same texts."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from llama_cpp_peer import CONTROL, USER_DEFINED, PeerRun, Request, describe
from test_tokenizer_sentencepiece import charsmap_of

from checkpoints import CONFIG, write_llama, write_safetensors
from checkpoints import llama_tensors as tensors_of_llama
from ingot.convert.conversion import plan
from ingot.gguf import GgufLoader
from ingot.tokenizer import Tokenizer
from models.recipe import changed
from models.recipes import RECIPES

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


def test_merged_characters(tmp_path: Path) -> None:
    """Gemma 4's: characters are merged over the borders of words; the file has the merges."""
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("\n", "isolated")
    made.train_from_iterator(
        CORPUS,
        tokenizers.trainers.BpeTrainer(
            vocab_size=SIZE, special_tokens=[*special, "<|tool_call>"], limit_alphabet=60
        ),
    )
    rows = made.get_vocab_size()
    recipe = changed(RECIPES["gemma4"], {"vocab_size": rows, "vocab_size_per_layer_input": rows})
    model, _ = filled_model(recipe)
    model.float().save_pretrained(tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"})
    )
    plan(tmp_path).write(tmp_path / "model.gguf")
    with GgufLoader(tmp_path / "model.gguf") as loader:
        assert loader.metadata.string("tokenizer.ggml.model") == "gemma4"
        ours = Tokenizer(loader.metadata)
        for text in TEXTS:
            expected = made.encode(text, add_special_tokens=False).ids
            assert list(ours.encode(text, add_special=False)) == expected, text
    if find_spec("llama_cpp") is not None:
        peer = describe(tmp_path / "model.gguf")
        assert peer.attributes[special.index("<bos>")] & CONTROL
        assert peer.attributes[len(special)] & USER_DEFINED
        requests = [Request(text.encode()) for text in TEXTS]
        with PeerRun([(tmp_path / "model.gguf", requests)], tmp_path) as run:
            for text, theirs in zip(TEXTS, run.ids(), strict=True):
                assert list(ours.encode(text, add_special=False)) == theirs, text


def trained(folder: Path, **ids: int):
    """A unigram model with NFKC, as T5 and XLM-R have one."""
    peer = pytest.importorskip("sentencepiece", reason="no peer: pip install sentencepiece")
    peer.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.splitlines()),
        model_prefix=str(folder / "spiece"),
        model_type="unigram",
        vocab_size=400,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
    )
    return peer.SentencePieceProcessor(model_file=str(folder / "spiece.model"))


def described_model(
    peer, tokens: list[str], unknown: int, around: str, specials: list[str]
) -> tokenizers.Tokenizer:
    """The same model in tokenizer.json, as the hub has those of T5 and XLM-R."""
    scores = [peer.get_score(peer.piece_to_id(token)) for token in tokens]
    models, pre = tokenizers.models, tokenizers.pre_tokenizers
    made = tokenizers.Tokenizer(models.Unigram(list(zip(tokens, scores, strict=True)), unknown))
    made.normalizer = tokenizers.normalizers.Precompiled(charsmap_of(peer))
    made.pre_tokenizer = pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()])
    made.add_special_tokens(specials)
    ids = [(text, made.token_to_id(text)) for text in around.split() if text != "$A"]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=around, special_tokens=ids
    )
    return made


def same_ids(path: Path, folder: Path, expected: Callable[[str], list[int]]) -> None:
    """Of this tokenizer and of llama.cpp's, with what is put around a text."""
    texts = [text for text in TEXTS if text]  # of nothing, llama.cpp adds nothing
    with GgufLoader(path) as loader:
        ours = Tokenizer(loader.metadata)
        for text in texts:
            assert list(ours.encode(text)) == expected(text), text
    if find_spec("llama_cpp") is not None:
        requests = [Request(text.encode(), add_special=True) for text in texts]
        with PeerRun([(path, requests)], folder) as run:
            for text, theirs in zip(texts, run.ids(), strict=True):
                assert theirs == expected(text), text


@pytest.mark.parametrize("described", [False, True])
def test_t5(described: bool, tmp_path: Path) -> None:
    """SentencePiece's file with the tokens that T5 adds, or tokenizer.json instead of it."""
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    peer = trained(tmp_path, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    count = peer.vocab_size()
    extra = {count + 9 - number: f"<extra_id_{number}>" for number in range(10)}
    model, _ = filled_model(changed(RECIPES["t5"], {"vocab_size": count + 12}))
    model.float().save_pretrained(tmp_path)
    pieces = [peer.id_to_piece(id) for id in range(count)]
    expected = lambda text: [*peer.encode(text), 1]  # noqa: E731
    if described:
        specials = ["<pad>", "</s>", "<unk>", *(extra[id] for id in sorted(extra))]
        made = described_model(peer, pieces, 2, "$A </s>", specials)
        made.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "spiece.model").unlink()
        expected = lambda text: made.encode(text).ids  # noqa: E731
    else:
        settings = {
            "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
            "added_tokens_decoder": {
                str(id): {"content": text, "special": True} for id, text in extra.items()
            },
        }  # fmt: skip
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    plan(tmp_path).write(tmp_path / "model.gguf")
    same_ids(tmp_path / "model.gguf", tmp_path, expected)
    with GgufLoader(tmp_path / "model.gguf") as loader:
        first = Tokenizer(loader.metadata).encode("<extra_id_0>", parse_special=True)
        assert list(first)[-2] == count + 9


@pytest.mark.parametrize("described", [False, True])
def test_xlm_roberta(described: bool, tmp_path: Path) -> None:
    """Ids that differ from those of SentencePiece's file: fairseq's special tokens come first."""
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import filled_model  # noqa: PLC0415

    peer = trained(tmp_path, unk_id=0, bos_id=1, eos_id=2)
    rows = peer.vocab_size() + 2
    (tmp_path / "spiece.model").rename(tmp_path / "sentencepiece.bpe.model")
    recipe = changed(RECIPES["bert-roberta"], {"vocab_size": rows})
    model, _ = filled_model(replace(recipe, model="XLMRobertaModel"))
    model.float().save_pretrained(tmp_path)
    if described:
        specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        pieces = [peer.id_to_piece(id) for id in range(3, peer.vocab_size())]
        tokens = [*specials[:4], *pieces, "<mask>"]
        made = described_model(peer, tokens, 3, "<s> $A </s>", specials)
        made.save(str(tmp_path / "tokenizer.json"))
    plan(tmp_path).write(tmp_path / "model.gguf")

    def expected(text: str) -> list[int]:
        return [0, *(id + 1 if id else 3 for id in peer.encode(text)), 2]

    same_ids(tmp_path / "model.gguf", tmp_path, expected)
