"""Vocabularies of checkpoints: every kind of file, and how its special tokens are found."""

import base64
import json
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from checkpoints import write_llama
from ingot.convert.conversion import plan
from ingot.convert.folder import CheckpointFolder
from ingot.convert.ranked_vocabulary import read_tekken, read_tiktoken
from ingot.convert.sentencepiece_model import read_sentencepiece
from ingot.convert.special_keys import special_keys, template_keys
from ingot.convert.tokenizer_json import read_tokenizer_json
from ingot.convert.vocabulary import AddedToken, Vocabulary, added_tokens, read_vocabulary
from ingot.errors import ConversionError
from ingot.models.checkpoint import Checkpoint
from ingot.tokenizer import TokenType

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)
BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
PLAIN = Checkpoint(models=())
BYTES = {"type": "ByteLevel", "use_regex": False}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}


def byte_level(*steps: dict[str, Any], **model: Any) -> Vocabulary:
    described = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], **model},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)},
    }
    return read_tokenizer_json(described, [])


@pytest.mark.parametrize(
    ("steps", "whole_words", "name"),
    [
        ([{"type": "ByteLevel", "use_regex": True}], False, "gpt-2"),
        ([split(LLAMA3), BYTES], True, "llama-bpe"),
        ([split(LLAMA3), BYTES], False, "dbrx"),
        ([split(LLAMA3.replace("{1,3}", "")), BYTES], False, "qwen2"),
        ([split(TEKKEN), BYTES], True, "tekken"),
        ([split(O200K), BYTES], False, "gpt-4o"),
        ([split(QWEN35), BYTES], False, "qwen35"),
        ([split(pattern) for pattern in DEEPSEEK3] + [BYTES], False, "deepseek-v3"),
        ([split(BAILING), BYTES], False, "bailingmoe"),
        (
            [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}],
            False,
            "starcoder",
        ),
    ],
)
def test_pre_tokenizers_are_known_by_their_patterns(
    steps: list[dict[str, Any]], whole_words: bool, name: str
) -> None:
    assert byte_level(*steps, ignore_merges=whole_words).pre == name


def test_an_unknown_pattern_is_shown() -> None:
    with pytest.raises(ConversionError, match=r"has no name in GGUF files.*my pattern"):
        byte_level(split("my pattern"), BYTES)


@pytest.mark.parametrize("merges", [["a b"], [["a", "b"]]])
def test_merges_in_both_forms(merges: list[Any]) -> None:
    assert byte_level(split(LLAMA3), BYTES, merges=merges).merges == ["a b"]


@pytest.mark.parametrize("merges", [3, ["a"], [["a", "b", "c"]], [["a", 1]], [None]])
def test_merges_that_are_none(merges: Any) -> None:
    with pytest.raises(ConversionError, match="merge"):
        byte_level(split(LLAMA3), BYTES, merges=merges)


def test_scores_of_sentencepiece_follow_the_merges() -> None:
    described = {
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "vocab": {"<unk>": 0, "<0x0A>": 1, "a": 2, "b": 3, "ab": 4, "\u2581": 5, "\u2581ab": 6},
            "merges": ["\u2581 ab", "a b"],
        },
        "normalizer": {"type": "Prepend", "prepend": "\u2581"},
    }
    found = read_tokenizer_json(
        described, [AddedToken(7, "<end>", True), AddedToken(8, "x", False)]
    )
    assert found.kind == "llama"
    assert found.scores is not None
    assert found.scores[6] == 0.0
    assert found.scores[4] == -1.0
    assert found.scores[2] < found.scores[4]
    assert found.flags == {"add_space_prefix": True}
    names = ["UNKNOWN", "BYTE", "NORMAL", "NORMAL", "NORMAL", "NORMAL", "NORMAL"]
    assert [kind.name for kind in found.types] == [*names, "CONTROL", "USER_DEFINED"]


def test_word_pieces_mark_beginnings() -> None:
    described = {
        "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "play": 1, "##ing": 2}},
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
    }
    found = read_tokenizer_json(described, [AddedToken(0, "[UNK]", True)])
    assert found.tokens == ["[UNK]", "\u2581play", "ing"]
    assert found.flags == {"normalizer.lowercase": True, "normalizer.strip_accents": True}


def test_unigram() -> None:
    described = {
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["\u2581a", -1.5]]},
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"map").decode()}
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"},
    }
    found = read_tokenizer_json(described, [])
    assert (found.kind, found.charsmap, found.scores) == ("t5", b"map", [0.0, -1.5])
    assert found.types[0] is TokenType.UNKNOWN
    assert found.flags["add_space_prefix"]


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"model": []},
        {"model": {"type": "WordLevel", "vocab": {}}},
        {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": True}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 2**30}, "merges": []}},
        {"model": {"type": "Unigram", "vocab": [["a"]]}},
        {"model": {"type": "Unigram", "vocab": {"a": 1}}},
    ],
)
def test_damaged_tokenizer_files(described: dict[str, Any]) -> None:
    with pytest.raises(ConversionError):
        read_tokenizer_json(described, [])


def field(number: int, value: bytes | int | float) -> bytes:
    """A field of a Protocol Buffers message, short ones only."""
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + pack("<f", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def sentencepiece(kind: int) -> bytes:
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("<0x0A>", 0.0, 6), ("\u2581a", -1.5, 1)]
    data = b"".join(
        field(1, field(1, text.encode()) + field(2, score) + field(3, type))
        for text, score, type in pieces
    )
    return data + field(2, field(3, kind)) + field(3, field(2, b"map") + field(3, 0) + field(4, 0))


@pytest.mark.parametrize(("kind", "name"), [(1, "t5"), (2, "llama")])
def test_sentencepiece_models(kind: int, name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(sentencepiece(kind))
    found = read_sentencepiece(path, [AddedToken(1, "<bos>", True), AddedToken(5, "<new>", False)])
    assert found.kind == name
    assert found.tokens == ["<unk>", "<bos>", "<0x0A>", "\u2581a", "[PAD4]", "<new>"]
    names = ["UNKNOWN", "CONTROL", "BYTE", "NORMAL", "UNUSED", "USER_DEFINED"]
    assert [type.name for type in found.types] == names
    assert found.scores is not None
    assert found.scores[3] == -1.5
    assert found.flags["add_space_prefix"] is False
    assert found.charsmap == (b"map" if kind == 1 else None)


def test_no_part_of_a_sentencepiece_model_crashes(tmp_path: Path) -> None:
    path, whole = tmp_path / "tokenizer.model", sentencepiece(2)
    refused = 0
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            read_sentencepiece(path, [])
        except ConversionError:
            refused += 1
    assert refused > len(whole) / 2  # others end between two fields


def ranked(*tokens: bytes) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]


def test_tekken() -> None:
    described = {
        "config": {"default_vocab_size": 8, "default_num_special_tokens": 3},
        "vocab": ranked(b"a", b"b", b" ", b"ab", b" ab", b"unused"),
        "special_tokens": [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"}],
    }
    found = read_tekken(described)
    assert found.tokens == ["<unk>", "<s>", "<SPECIAL_2>", "a", "b", "\u0120", "ab", "\u0120ab"]
    assert found.merges == ["a b", "\u0120 ab"]
    assert found.specials == {"unknown": 0, "bos": 1}
    for broken in ({"config": {}}, {"vocab": [3] * 5}, {"vocab": [{"token_bytes": "%"}] * 5}):
        with pytest.raises(ConversionError, match=r"tekken\.json"):
            read_tekken({**described, **broken})


def test_tiktoken(tmp_path: Path) -> None:
    path = tmp_path / "qwen.tiktoken"
    lines = [
        base64.b64encode(t).decode() + f" {i}"
        for i, t in enumerate([b"a", b"b", b"c", b"bc", b"cab"])
    ]
    path.write_text("\n".join(lines))
    found = read_tiktoken(path, [])
    assert found.merges == ["b c"]  # nothing makes the last one
    assert found.tokens[3:6] == ["bc", "cab", "<|endoftext|>"]
    assert len(found.tokens) == 5 + 3 + 205
    path.write_text("\n".join(lines[1:]))
    with pytest.raises(ConversionError, match="is not the token of rank 0"):
        read_tiktoken(path, [])


def test_tiktoken_with_special_tokens_apart(tmp_path: Path) -> None:
    """Kimi: ids that no token has are between the special ones."""
    path = tmp_path / "tiktoken.model"
    lines = [
        base64.b64encode(t).decode() + f" {i}" for i, t in enumerate([b"a", b"b", b" ", b"ab"])
    ]
    path.write_text("\n".join(lines))
    found = read_tiktoken(path, [AddedToken(4, "[BOS]", True), AddedToken(6, "[EOT]", True)])
    assert found.pre == "kimi-k2"
    assert found.tokens == ["a", "b", "\u0120", "ab", "[BOS]", "[PAD5]", "[EOT]"]
    assert found.types[4:] == [TokenType.CONTROL, TokenType.UNUSED, TokenType.CONTROL]
    assert found.merges == ["a b"]


def test_a_vocabulary_that_merges_characters(tmp_path: Path) -> None:
    """Where files have the merges, not scores; and special tokens that replies show."""
    folder = write_llama(tmp_path / "model")
    described = {
        "model": {
            "type": "BPE", "byte_fallback": True, "merges": [["\u2581", "a"]],
            "vocab": {"<unk>": 0, "\u2581": 1, "a": 2, "\u2581a": 3, "<|call>": 4, "<eos>": 5},
        },
        "added_tokens": [
            {"id": 4, "content": "<|call>", "special": True},
            {"id": 5, "content": "<eos>", "special": True},
        ],
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(described))
    form = Checkpoint(models=(), merged_characters="gemma4", shown_tokens=("<|call>",))
    found = read_vocabulary(CheckpointFolder.open(folder), form)
    assert (found.kind, found.merges) == ("gemma4", ["\u2581 a"])
    assert found.types[4:] == [TokenType.USER_DEFINED, TokenType.CONTROL]
    assert read_vocabulary(CheckpointFolder.open(folder), PLAIN).kind == "llama"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "llama", bos_token_id=3, eos_token_id=[4, 5], unk_token_id=999)


def keys_of(folder: Path) -> dict[str, Any]:
    opened = CheckpointFolder.open(folder)
    return special_keys(opened, read_vocabulary(opened, PLAIN).padded(61))


def test_special_tokens_by_number_and_by_name(folder: Path) -> None:
    found = keys_of(folder)
    assert found["tokenizer.ggml.bos_token_id"] == 3
    assert found["tokenizer.ggml.eos_token_id"] == 4
    assert "tokenizer.ggml.unknown_token_id" not in found  # beyond the vocabulary
    names = {"bos_token": {"content": "!"}, "eos_token": "#", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    found = keys_of(folder)
    assert found["tokenizer.ggml.bos_token_id"] == 0
    assert found["tokenizer.ggml.eos_token_id"] == 2
    assert found["tokenizer.ggml.add_bos_token"] is True


def test_what_a_template_puts_around_a_text(folder: Path) -> None:
    described = json.loads((folder / "tokenizer.json").read_text())
    described["post_processor"] = {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel"},
            {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "$"}}, {"Sequence": {"id": "A"}}],
            },
        ],
    }
    (folder / "tokenizer.json").write_text(json.dumps(described))
    found = keys_of(folder)
    assert found["tokenizer.ggml.add_bos_token"] is True
    assert found["tokenizer.ggml.add_eos_token"] is False


def test_chat_templates(folder: Path) -> None:
    opened = CheckpointFolder.open(folder)
    assert template_keys(opened) == {}
    several = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert template_keys(opened) == {
        "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": "B",
        "tokenizer.chat_template": "A",
    }
    (folder / "chat_template.jinja").write_text("C")
    assert template_keys(opened) == {"tokenizer.chat_template": "C"}


def test_added_tokens_of_all_files(folder: Path) -> None:
    (folder / "added_tokens.json").write_text(json.dumps({"<one>": 61}))
    decoder = {"62": {"content": "<two>", "special": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    opened = CheckpointFolder.open(folder)
    assert added_tokens(opened) == [AddedToken(61, "<one>", False), AddedToken(62, "<two>", True)]
    with pytest.raises(ConversionError, match="63 tokens, but the embedding only 61 rows"):
        plan(folder)
    (folder / "added_tokens.json").write_text(json.dumps({"<one>": "61"}))
    with pytest.raises(ConversionError, match="has no valid id"):
        added_tokens(opened)
