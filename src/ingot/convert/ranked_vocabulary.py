"""Vocabularies of ranked byte strings: tekken.json, *.tiktoken and tiktoken.model.

In: a file of byte strings, each with its rank. Out: a byte-level `Vocabulary`. Such a file has no
merges; they follow from the ranks: a token is made from the two that are left if its bytes are
merged as long as the result ranks before it.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.convert.vocabulary import AddedToken, Vocabulary, merged
from ingot.errors import ConversionError
from ingot.tokenizer.build import TokenType

_MOST_BYTES = 100_000_000


def _byte_characters() -> list[str]:
    """The character for each byte: printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    found = {byte: chr(byte) for byte in printable}
    found |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    return [found[byte] for byte in range(256)]


_CHARACTERS = _byte_characters()


def _written(data: bytes) -> str:
    return "".join(_CHARACTERS[byte] for byte in data)


def _halves(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens whose merge makes a token."""
    parts = [bytes([byte]) for byte in token]
    limit = ranks[token]
    while len(parts) > 2:
        pairs = [ranks.get(parts[at] + parts[at + 1], limit) for at in range(len(parts) - 1)]
        best = min(range(len(pairs)), key=pairs.__getitem__)
        if pairs[best] >= limit:
            return None
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _merges(ranks: Mapping[bytes, int]) -> list[str]:
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        pair = _halves(token, ranks) if 1 < len(token) <= 1024 else None
        if pair is not None:
            merges.append(" ".join(map(_written, pair)))
    return merges


def read_tekken(described: Mapping[str, Any]) -> Vocabulary:
    """Mistral's file: special tokens have the first ids."""
    config, listed = described.get("config"), described.get("vocab")
    if not isinstance(config, Mapping) or not isinstance(listed, list):
        raise ConversionError("tekken.json has no config or no vocab")
    size, specials = config.get("default_vocab_size"), config.get("default_num_special_tokens")
    if type(size) is not int or type(specials) is not int or not 0 <= specials < size < 2**24:
        raise ConversionError("tekken.json does not state the sizes of its vocabulary")
    ranks: dict[bytes, int] = {}
    for entry in listed[: size - specials]:
        if not isinstance(entry, Mapping):
            raise ConversionError("tekken.json: a token is not an object")
        ranks[_decoded(entry.get("token_bytes"), "tekken.json")] = len(ranks)
    named = described.get("special_tokens") or []
    texts = [f"<SPECIAL_{number}>" for number in range(specials)]
    for entry in named if isinstance(named, list) else []:
        if isinstance(entry, Mapping) and type(entry.get("rank")) is int:
            if not 0 <= entry["rank"] < specials:
                raise ConversionError(f"tekken.json: a special token has rank {entry['rank']}")
            texts[entry["rank"]] = str(entry.get("token_str"))
    known = {text: id for id, text in enumerate(texts)}
    names = {"unknown": "<unk>", "bos": "<s>", "eos": "</s>", "padding": "<pad>"}
    return Vocabulary(
        kind="gpt2",
        pre="tekken",
        tokens=texts + [_written(token) for token in ranks],
        types=[TokenType.CONTROL] * specials + [TokenType.NORMAL] * len(ranks),
        merges=_merges(ranks),
        flags={"add_bos_token": True, "add_eos_token": False},
        specials={name: known[text] for name, text in names.items() if text in known},
    )


# How texts are cut into words is in no file.
_PRE_TOKENIZERS = {"tiktoken.model": "kimi-k2", "hy.tiktoken": "hunyuan"}
# What Qwen's own tokenizer adds after the tokens of its file.
_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN_EXTRAS = 205


def read_tiktoken(path: Path, added: list[AddedToken]) -> Vocabulary:
    """A line for each token: its bytes in base64, and its rank."""
    if path.stat().st_size > _MOST_BYTES:
        raise ConversionError(f"{path} is larger than {_MOST_BYTES} bytes")
    ranks: dict[bytes, int] = {}
    for line in path.read_bytes().splitlines():
        if line.strip():
            text, _, rank = line.partition(b" ")
            if rank.strip() != str(len(ranks)).encode():
                raise ConversionError(
                    f"{path}: {line[:80]!r} is not the token of rank {len(ranks)}"
                )
            ranks[_decoded(text.decode("ascii", "replace"), path.name)] = len(ranks)
    specials = [token for token in added if token.id >= len(ranks)]
    if not specials and path.name == "qwen.tiktoken":
        names = [*_QWEN, *(f"<|extra_{number}|>" for number in range(_QWEN_EXTRAS))]
        specials = [AddedToken(len(ranks) + at, name, True) for at, name in enumerate(names)]
    words = {rank: _written(token) for token, rank in ranks.items()}
    tokens, types = merged(words, specials, sentencepiece=False)
    return Vocabulary(
        kind="gpt2",
        pre=_PRE_TOKENIZERS.get(path.name, "qwen2"),
        tokens=tokens,
        types=types,
        merges=_merges(ranks),
    )


def _decoded(text: Any, file: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ConversionError(f"{file}: {text!r} is not base64") from None
