"""Vocabularies in SentencePiece's .model files, which are Protocol Buffers messages.

In: a path and the added tokens. Out: a `Vocabulary`. Only the fields that a vocabulary needs are
read: pieces with scores and types, the kind of model, and the rules of the normalizer.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import error as StructError  # noqa: N812
from struct import unpack

from ingot.convert.vocabulary import AddedToken, Vocabulary
from ingot.errors import ConversionError
from ingot.tokenizer.build import TokenType

_MOST_BYTES = 100_000_000
_UNIGRAM, _BPE = 1, 2
_UNLIKELY = -10000.0
_TYPES = {
    1: TokenType.NORMAL,
    2: TokenType.UNKNOWN,
    3: TokenType.CONTROL,
    4: TokenType.USER_DEFINED,
    5: TokenType.UNUSED,
    6: TokenType.BYTE,
}
# Numbers of fields in sentencepiece_model.proto.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_MODEL_TYPE = 3
_CHARSMAP, _DUMMY_PREFIX, _EXTRA_SPACES = 2, 3, 4


def read_sentencepiece(path: Path, added: list[AddedToken]) -> Vocabulary:
    """The vocabulary of a .model file, with added tokens."""
    if path.stat().st_size > _MOST_BYTES:
        raise ConversionError(f"{path} is larger than {_MOST_BYTES} bytes")
    try:
        vocabulary = _read(path.read_bytes())
    except (ValueError, StructError) as error:
        raise ConversionError(f"{path} is not a SentencePiece model: {error}") from None
    return _with_added(vocabulary, added)


def read_fairseq(path: Path, added: list[AddedToken]) -> Vocabulary:
    """The same of XLM-R: four special tokens instead of the model's three, and one at the end."""
    found = read_sentencepiece(path, [])
    own = [TokenType.CONTROL] * 3 + [TokenType.UNKNOWN]
    shifted = replace(
        found,
        tokens=["<s>", "<pad>", "</s>", "<unk>", *found.tokens[3:], "<mask>"],
        types=[*own, *found.types[3:], TokenType.CONTROL],
        scores=[0.0, 0.0, 0.0, 0.0, *(found.scores or ())[3:], 0.0],
        specials={"bos": 0, "padding": 1, "eos": 2, "unknown": 3},
        flags={**found.flags, "add_bos_token": True, "add_eos_token": True},
    )
    return _with_added(shifted, added)


def _read(data: bytes) -> Vocabulary:
    tokens, scores, types = [], [], []
    kind, charsmap = _UNIGRAM, b""
    flags = {"add_space_prefix": True, "remove_extra_whitespaces": True}
    for number, value in _fields(data):
        if number == _PIECES and isinstance(value, bytes):
            piece = dict(_fields(value))
            tokens.append(_bytes(piece.get(_PIECE_TEXT, b"")).decode())
            (score,) = unpack("<f", _bytes(piece.get(_PIECE_SCORE, bytes(4))))
            scores.append(score)
            types.append(_TYPES[_integer(piece.get(_PIECE_TYPE, 1))])
        elif number == _TRAINER and isinstance(value, bytes):
            kind = _integer(dict(_fields(value)).get(_MODEL_TYPE, kind))
        elif number == _NORMALIZER and isinstance(value, bytes):
            rules = dict(_fields(value))
            charsmap = _bytes(rules.get(_CHARSMAP, b""))
            flags["add_space_prefix"] = bool(rules.get(_DUMMY_PREFIX, 1))
            flags["remove_extra_whitespaces"] = bool(rules.get(_EXTRA_SPACES, 1))
    if not tokens:
        raise ValueError("it has no pieces")
    if kind == _BPE:
        del flags["remove_extra_whitespaces"]
        return Vocabulary(kind="llama", tokens=tokens, types=types, scores=scores, flags=flags)
    if kind != _UNIGRAM:
        raise ValueError(f"its type {kind} is neither BPE nor unigram")
    return Vocabulary(
        kind="t5",
        tokens=tokens,
        types=types,
        scores=scores,
        charsmap=charsmap or None,
        flags=flags,
    )


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field has the wrong type")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError("a field has the wrong type")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: integers, or bytes (also for 4 and 8 byte numbers)."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field has the unknown wire type {wire}")
        if at + size > len(data):
            raise ValueError("it is truncated")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


def _with_added(vocabulary: Vocabulary, added: list[AddedToken]) -> Vocabulary:
    """Added tokens after the pieces; one with the id of a piece may change its text and type."""
    tokens, types = list(vocabulary.tokens), list(vocabulary.types)
    scores = list(vocabulary.scores or ())
    for token in added:
        if token.id > len(tokens) + len(added):
            raise ConversionError(f"the added token {token.text!r} has the id {token.id}")
        while token.id >= len(tokens):
            tokens.append(f"[PAD{len(tokens)}]")
            types.append(TokenType.UNUSED)
            scores.append(_UNLIKELY)
        kept = types[token.id] in (TokenType.UNKNOWN, TokenType.BYTE)
        tokens[token.id] = token.text
        if not kept:
            types[token.id] = TokenType.CONTROL if token.special else TokenType.USER_DEFINED
    return replace(vocabulary, tokens=tokens, types=types, scores=scores)
