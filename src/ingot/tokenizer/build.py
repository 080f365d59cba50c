"""Builds the native tokenizer from the metadata of a file.

In: metadata. Out: the native vocabulary and tokenizer, and the end-of-generation tokens. One
function per vocabulary kind (`tokenizer.ggml.model`) reads the keys of that kind; defaults are
llama.cpp's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.errors import TokenizerError
from ingot.gguf import Metadata, StringArray
from ingot.tokenizer.pretokenizers import PreTokenizer, pre_tokenizer
from ingot.tokenizer.special_tokens import NamedIds, meanings, named_ids, required

_PREFIX = "tokenizer.ggml."
_LONGEST_SPECIAL = 1024  # bytes; those of real vocabularies have less than a hundred
_SCORES, _TYPES = f"{_PREFIX}scores", f"{_PREFIX}token_type"


class TokenType(IntEnum):
    """The type of a token, as numbered in the file format."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The metadata of a vocabulary, before anything is built."""

    metadata: Metadata
    kind: str
    pre: str | None
    tokens: StringArray
    named: NamedIds
    cutting: PreTokenizer | None  # for byte-level vocabularies

    def flag(self, name: str, default: bool) -> bool:
        """A boolean key of the file."""
        return self.metadata.boolean(_PREFIX + name, default)


@dataclass(frozen=True, slots=True)
class Core:
    """The native tokenizer, and the special tokens found while it was built."""

    vocabulary: _native.Vocabulary
    tokenizer: _native.Tokenizer
    ends: frozenset[int]
    middle: Mapping[str, int]


def describe(metadata: Metadata) -> Vocabulary:
    """Read what is cheap to read; `TokenizerError` if the file has no usable vocabulary."""
    kind = metadata.string(f"{_PREFIX}model", None)
    if kind is None:
        raise TokenizerError(f"the file has no vocabulary: the key {_PREFIX}model is missing")
    if kind not in _MODELS:
        known = ", ".join(_MODELS)
        raise TokenizerError(
            f"the vocabulary kind {kind!r} is not supported; the kinds are {known}"
        )
    tokens = metadata.strings(f"{_PREFIX}tokens")
    for key in (_SCORES, _TYPES):
        values = metadata.array(key, None)
        if values is not None and len(values) not in (0, len(tokens)):
            raise TokenizerError(f"{key} has {len(values)} entries for {len(tokens)} tokens")
    pre = metadata.string(f"{_PREFIX}pre", None)
    cutting = pre_tokenizer(pre or "default") if kind == "gpt2" else None
    default_bos = cutting is None or cutting.default_bos
    named = named_ids(metadata, kind, len(tokens), default_bos=default_bos)
    return Vocabulary(metadata, kind, pre, tokens, named, cutting)


def build(vocabulary: Vocabulary) -> Core:
    """Index the tokens and set up the tokenizer of the vocabulary kind."""
    metadata, tokens = vocabulary.metadata, vocabulary.tokens
    try:
        native = _native.Vocabulary(
            tokens.data,
            tokens.offsets,
            _aligned(metadata.array(_SCORES, None), np.float32),
            _aligned(metadata.array(_TYPES, None), np.int32),
        )

        def find(text: str) -> int | None:
            id = native.find(text.encode())
            return id if id >= 0 else None

        known = meanings(metadata, vocabulary.named, len(tokens), find)
        model, before, after = _MODELS[vocabulary.kind](vocabulary, native)
        for id in known.controls:
            native.set_type(id, TokenType.CONTROL)
        _check_lengths(tokens, native)
        left, right = _strips(vocabulary, native, find)
        tokenizer = _native.Tokenizer(native, model, before, after, left, right)
    except (ValueError, TypeError) as error:
        raise TokenizerError(f"the vocabulary cannot be used: {error}") from error
    return Core(native, tokenizer, known.ends, known.middle)


def _check_lengths(tokens: StringArray, native: _native.Vocabulary) -> None:
    """Refuse special tokens that are looked for at every byte of a text for too long."""
    ends = np.append(tokens.offsets[1:], np.uint64(len(tokens.data)))
    if not (ends - tokens.offsets > _LONGEST_SPECIAL).any():
        return
    for kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED):
        for id in native.ids_of_type(kind):
            if (size := len(tokens.raw(id))) > _LONGEST_SPECIAL:
                raise TokenizerError(
                    f"token {id} is a special one of {size} bytes; at most {_LONGEST_SPECIAL} "
                    "can be used"
                )


def _aligned(array: NDArray[Any] | None, dtype: type) -> NDArray[Any] | None:
    """The values for native code: a view of the file if they are aligned there, else a copy."""
    return None if array is None else np.require(array, dtype, ["C", "A"])


_Built = tuple[_native.Model, list[int], list[int]]  # the model, ids before and after a text


def _special_around(
    vocabulary: Vocabulary, *, add_bos: bool, add_eos: bool
) -> tuple[list[int], list[int]]:
    named = vocabulary.named
    before = [required(named.bos, "bos")] if vocabulary.flag("add_bos_token", add_bos) else []
    after = [required(named.eos, "eos")] if vocabulary.flag("add_eos_token", add_eos) else []
    return before, after


def _id(value: int | None) -> int:
    return -1 if value is None else value


def _byte_bpe(vocabulary: Vocabulary, native: _native.Vocabulary) -> _Built:
    cutting = vocabulary.cutting
    assert cutting is not None
    merges = vocabulary.metadata.strings(f"{_PREFIX}merges", None)
    if merges is None:
        if vocabulary.pre != "kimi-k2":
            raise TokenizerError(f"the key {_PREFIX}merges is missing")
        merges = vocabulary.tokens[:0]
    model = _native.byte_bpe(
        native, merges.data, merges.offsets, list(cutting.passes), cutting.whole_words
    )
    return model, *_special_around(vocabulary, add_bos=cutting.add_bos, add_eos=False)


def _character_bpe(vocabulary: Vocabulary, native: _native.Vocabulary) -> _Built:
    merges = vocabulary.metadata.strings(f"{_PREFIX}merges")
    model = _native.character_bpe(native, merges.data, merges.offsets)
    # It always begins with BOS, whatever the file says.
    before = [required(vocabulary.named.bos, "bos")]
    return model, before, _special_around(vocabulary, add_bos=False, add_eos=False)[1]


def _sentencepiece(vocabulary: Vocabulary, native: _native.Vocabulary) -> _Built:
    space_prefix = vocabulary.flag("add_space_prefix", True)
    model = _native.sentencepiece(native, space_prefix, _id(vocabulary.named.unknown))
    return model, *_special_around(vocabulary, add_bos=True, add_eos=False)


def _word_piece(vocabulary: Vocabulary, native: _native.Vocabulary) -> _Built:
    named = vocabulary.named
    lower_case = vocabulary.flag("normalizer.lowercase", True)
    strip_accents = vocabulary.flag("normalizer.strip_accents", lower_case)
    model = _native.word_piece(native, lower_case, strip_accents, _id(named.unknown))
    # BERT always adds its two tokens, whatever the file says.
    return model, [required(named.bos, "bos")], [required(named.separator, "seperator")]


def _unigram(vocabulary: Vocabulary, native: _native.Vocabulary) -> _Built:
    charsmap = vocabulary.metadata.array(f"{_PREFIX}precompiled_charsmap", None)
    model = _native.unigram(
        native,
        np.empty(0, np.uint8) if charsmap is None else charsmap.view(np.uint8),
        vocabulary.flag("add_space_prefix", False),
        vocabulary.flag("remove_extra_whitespaces", False),
        _id(vocabulary.named.unknown),
    )
    return model, *_special_around(vocabulary, add_bos=False, add_eos=True)


def _rwkv(vocabulary: Vocabulary, native: _native.Vocabulary) -> _Built:
    # No special tokens are added, whatever the file says.
    return _native.rwkv(native, _id(vocabulary.named.unknown)), [], []


_MODELS: dict[str, Callable[[Vocabulary, _native.Vocabulary], _Built]] = {
    "gpt2": _byte_bpe,
    "llama": _sentencepiece,
    "gemma4": _character_bpe,
    "bert": _word_piece,
    "t5": _unigram,
    "rwkv": _rwkv,
}


def _strips(
    vocabulary: Vocabulary, native: _native.Vocabulary, find: Callable[[str], int | None]
) -> tuple[list[int], list[int]]:
    """Special tokens that remove the white space to the left and to the right of them.

    Files do not list them. As in transformers, the mask of XLM-R's vocabularies is one, which are
    those of the Unigram kind that have it; others are known by names that llama.cpp knows, too.
    """
    name = vocabulary.metadata.string("general.name", "").lower()
    pre = vocabulary.pre or ""

    def ids(*texts: str) -> set[int]:
        return {id for text in texts if (id := find(text)) is not None}

    jina = any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code"))
    if jina or vocabulary.kind == "t5":
        return sorted(ids("<mask>")), []
    if "phi-3" in name or "phi3" in name:
        special = {
            id
            for type in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
            for id in native.ids_of_type(type)
        }
        return [], sorted((special | ids("</s>")) - ids("<unk>", "<s>", "<|endoftext|>"))
    if "modern-bert" in name:
        return sorted(ids("[MASK]")), []
    return [], []
