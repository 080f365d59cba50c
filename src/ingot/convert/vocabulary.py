"""The vocabulary of a checkpoint, whichever files it is stored in.

In: the folder of a checkpoint and the rows of its embedding. Out: a `Vocabulary` in the form of a
GGUF file. The modules beside this one read one kind of file each: tokenizer.json, SentencePiece's
.model, and ranked byte strings (tekken.json, *.tiktoken).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ingot.convert.folder import CheckpointFolder
from ingot.errors import ConversionError
from ingot.models.checkpoint import Checkpoint
from ingot.tokenizer.build import TokenType

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SPACE = "\u2581"  # SentencePiece's mark of a space


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens in the order of their ids."""

    kind: str  # `tokenizer.ggml.model`
    tokens: list[str]
    types: list[TokenType]
    pre: str | None = None
    scores: list[float] | None = None
    merges: list[str] | None = None
    character_merges: list[str] | None = None  # of a model whose scores stand for them
    charsmap: bytes | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)
    specials: Mapping[str, int] = field(default_factory=dict)  # that its file states

    def padded(self, rows: int) -> "Vocabulary":
        """With as many tokens as the embedding has rows."""
        missing = rows - len(self.tokens)
        if missing < 0:
            raise ConversionError(
                f"the vocabulary has {len(self.tokens)} tokens, but the embedding only {rows} rows"
            )
        numbers = range(len(self.tokens), rows)
        return replace(
            self,
            tokens=self.tokens + [f"[PAD{number}]" for number in numbers],
            types=self.types + [TokenType.UNUSED] * missing,
            scores=None if self.scores is None else self.scores + [-10000.0] * missing,
        )


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token beside the model of a tokenizer."""

    id: int
    text: str
    special: bool


def added_tokens(folder: CheckpointFolder) -> list[AddedToken]:
    """Those of tokenizer.json, tokenizer_config.json and added_tokens.json, each id once."""
    found: dict[int, AddedToken] = {}
    for text, id in folder.json("added_tokens.json").items():
        _add(found, id, text, False)
    decoder = folder.json("tokenizer_config.json").get("added_tokens_decoder")
    for key, entry in (decoder if isinstance(decoder, Mapping) else {}).items():
        if isinstance(entry, Mapping) and str(key).isdecimal():
            _add(found, int(key), entry.get("content"), entry.get("special"))
    listed = folder.json("tokenizer.json").get("added_tokens")
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, Mapping):
            _add(found, entry.get("id"), entry.get("content"), entry.get("special"))
    return [found[id] for id in sorted(found)]


def _add(found: dict[int, AddedToken], id: Any, text: Any, special: Any) -> None:
    if type(id) is not int or not 0 <= id < 2**31 or not isinstance(text, str):
        raise ConversionError(f"the added token {text!r} has no valid id: {id!r}")
    found[id] = AddedToken(id, text, bool(special))


def merged(
    model: Mapping[int, str], added: list[AddedToken], *, sentencepiece: bool
) -> tuple[list[str], list[TokenType]]:
    """The texts and types of all ids; ids without a token get a name of their own."""
    others = {token.id: token for token in added}
    count = max([*model, *others], default=-1) + 1
    if count > 2 * (len(model) + len(others)) + 1000:
        raise ConversionError(f"the vocabulary has {len(model)} tokens, but ids up to {count - 1}")
    tokens, types = [], []
    for id in range(count):
        if id in others:
            text, special = others[id].text, others[id].special
            plain = text if special else text.replace(_SPACE, " ")
            kind = TokenType.CONTROL if special else TokenType.USER_DEFINED
            if sentencepiece and text == "<unk>":
                kind = TokenType.UNKNOWN
            elif sentencepiece and _BYTE.fullmatch(text):
                kind = TokenType.BYTE
            tokens.append(plain)
            types.append(kind)
        elif id in model:
            tokens.append(model[id])
            types.append(_type_of(model[id]) if sentencepiece else TokenType.NORMAL)
        else:
            tokens.append(f"[PAD{id}]")
            types.append(TokenType.UNUSED)
    return tokens, types


def _type_of(text: str) -> TokenType:
    if _BYTE.fullmatch(text):
        return TokenType.BYTE
    return TokenType.UNKNOWN if text == "<unk>" else TokenType.NORMAL


def read_vocabulary(folder: CheckpointFolder, form: Checkpoint) -> Vocabulary:
    """The vocabulary of a checkpoint; `ConversionError` if it has none that is known."""
    found = _stored_vocabulary(folder)
    if form.merged_characters is not None and found.character_merges is not None:
        flags = {"add_space_prefix": False, "add_bos_token": True}
        found = replace(
            found, kind=form.merged_characters, merges=found.character_merges, flags=flags
        )
    types = [
        TokenType.USER_DEFINED if token in form.shown_tokens else kind
        for token, kind in zip(found.tokens, found.types, strict=True)
    ]
    return replace(found, types=types)


def _stored_vocabulary(folder: CheckpointFolder) -> Vocabulary:
    from ingot.convert.ranked_vocabulary import read_tekken, read_tiktoken  # noqa: PLC0415
    from ingot.convert.sentencepiece_model import (  # noqa: PLC0415
        read_fairseq,
        read_sentencepiece,
    )
    from ingot.convert.tokenizer_json import is_byte_level, read_tokenizer_json  # noqa: PLC0415

    described = folder.json("tokenizer.json")
    for name in ("tokenizer.model", "spiece.model"):
        # A byte-level tokenizer.json wins, because then the other file is of an older model.
        if (folder.path / name).is_file() and not is_byte_level(described):
            return read_sentencepiece(folder.path / name, added_tokens(folder))
    if described:
        return read_tokenizer_json(described, added_tokens(folder))
    if (path := folder.path / "sentencepiece.bpe.model").is_file():
        return read_fairseq(path, added_tokens(folder))
    if (folder.path / "tekken.json").is_file():
        return read_tekken(folder.json("tekken.json"))
    for path in sorted([*folder.path.glob("*.tiktoken"), *folder.path.glob("tiktoken.model")]):
        return read_tiktoken(path, added_tokens(folder))
    raise ConversionError(
        f"{folder.path} has no vocabulary: tokenizer.json, tokenizer.model, tekken.json, "
        "tiktoken.model or *.tiktoken is needed"
    )
