"""Tokenizer: text to token ids and back, from the metadata of a GGUF file alone.

In: `str` or `bytes`. Out: ids, and bytes or `str` again. The ids equal llama.cpp's for the same
file and flags. The work is native (native/tokenizer/); the native tokenizer is built on first use.

Control and unknown tokens are found in a text only with `parse_special=True`; without it, no text
becomes one (llama.cpp lets RWKV's `<s>` through). User-defined tokens are always found, as in
SentencePiece and llama.cpp, because models were trained that way (Gemma's line ends are such
tokens). The control tokens of chat formats stay control tokens, also those of gpt-oss, which
llama.cpp makes user-defined to show them.

Invalid UTF-8 in `bytes`: byte-level vocabularies see U+FFFD for every byte that does not start a
character, as in llama.cpp; SentencePiece gives the tokens of the bytes.

Decoding joins the bytes of the tokens and nothing else: a space that a vocabulary puts before every
text stays. It does not know chat templates.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ingot.config import config
from ingot.errors import TokenizerError
from ingot.gguf import GgufLoader, Metadata
from ingot.tokenizer.build import Core, TokenType, build, describe
from ingot.tokenizer.special_tokens import REASONING_TAGS


class Tokenizer:
    """The tokenizer of a model, for any number of threads."""

    def __init__(self, metadata: Metadata) -> None:
        self._vocabulary = describe(metadata)

    @classmethod
    def from_gguf(cls, path: str | PathLike[str]) -> Self:
        """The tokenizer of a file, which needs a vocabulary but no tensors."""
        return cls(GgufLoader(path).metadata)

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Self:
        """The tokenizer of a file that is open."""
        return cls(metadata)

    @cached_property
    def _core(self) -> Core:
        # Two threads at once may build it twice; both results are equal.
        return build(self._vocabulary)

    def __repr__(self) -> str:
        cut = f", pre {self.pre!r}" if self.pre else ""
        return f"Tokenizer({self.kind!r}{cut}, {self.vocab_size} tokens)"

    @property
    def kind(self) -> str:
        """The vocabulary kind, as the file names it: gpt2, llama, gemma4, bert, t5 or rwkv."""
        return self._vocabulary.kind

    @property
    def pre(self) -> str | None:
        """The pre-tokenizer, as the file names it."""
        return self._vocabulary.pre

    @property
    def vocab_size(self) -> int:
        """The number of tokens; ids go from 0 to one less."""
        return len(self._vocabulary.tokens)

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text (BOS)."""
        return self._vocabulary.named.bos

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` adds BOS to a text."""
        return self.bos_id is not None and self.encode("")[:1] == [self.bos_id]

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text (EOS)."""
        return self._vocabulary.named.eos

    @property
    def eog_ids(self) -> frozenset[int]:
        """All end-of-generation tokens."""
        return self._core.ends

    @cached_property
    def reasoning_ids(self) -> frozenset[int]:
        """The tokens that begin the reasoning of an answer."""
        found = [
            self.encode(tag, add_special=False, parse_special=True) for tag, _ in REASONING_TAGS
        ]
        return frozenset(ids[0] for ids in found if len(ids) == 1)

    @property
    def middle_ids(self) -> Mapping[str, int]:
        """The fill-in-the-middle tokens of the model: `fim_pre`, `fim_suf`, `fim_mid`, ..."""
        return self._core.middle

    def encode(
        self,
        text: str | bytes,
        add_special: bool = True,
        parse_special: bool = False,
        plain_spans: Sequence[tuple[int, int]] = (),
    ) -> list[int]:
        """The ids of a text.

        `add_special` adds the tokens that the file asks for (BOS, EOS, SEP). `parse_special` turns
        the texts of control tokens into these tokens, except if they overlap one of `plain_spans`:
        (begin, end) in characters of a str, in bytes of bytes.
        """
        core = self._core.tokenizer
        try:
            return core.encode(text, add_special, parse_special, list(plain_spans))
        except ValueError as error:
            raise _error(error, text) from None
        except TypeError:
            raise TokenizerError("plain_spans must be pairs (begin, end) of integers") from None

    def encode_array(
        self, text: str | bytes, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """The ids of a text in an array, which takes a tenth of the memory of a list."""
        try:
            return self._core.tokenizer.encode_array(text, add_special, parse_special)
        except ValueError as error:
            raise _error(error, text) from None

    def encode_batch(
        self,
        texts: Iterable[str | bytes],
        add_special: bool = True,
        parse_special: bool = False,
        threads: int | None = None,
    ) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        count = config().threads if threads is None else threads
        listed = list(texts)
        try:
            return self._core.tokenizer.encode_batch(listed, add_special, parse_special, count)
        except ValueError as error:
            raise _error(error, *listed) from None

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of ids. Invalid UTF-8 becomes U+FFFD."""
        return self.decode_bytes(ids, skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The bytes of ids; `skip_special` leaves out control tokens."""
        try:
            return self._core.tokenizer.decode(list(ids), skip_special)
        except ValueError as error:
            raise TokenizerError(str(error)) from None

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token; empty if its type is unused."""
        return self.decode_bytes([id])

    def token_type(self, id: int) -> TokenType:
        """The type of a token."""
        self.token_bytes(id)  # raises if the id is invalid
        return TokenType(self._core.vocabulary.type(id))

    def ids_of_type(self, kind: TokenType) -> list[int]:
        """All tokens of a type."""
        return self._core.vocabulary.ids_of_type(kind)

    def is_control(self, id: int) -> bool:
        """Whether a token is a control or unknown token, which is not text."""
        return self.token_type(id) in (TokenType.CONTROL, TokenType.UNKNOWN)

    def control_tokens(self) -> Mapping[str, int]:
        """The control tokens by their text."""
        return self._controls

    @cached_property
    def _controls(self) -> Mapping[str, int]:
        ids = self._core.vocabulary.ids_of_type(TokenType.CONTROL)
        return MappingProxyType({self._vocabulary.tokens[id]: id for id in ids})


def _error(error: ValueError, *texts: object) -> TokenizerError:
    """An error of native code; if a text is invalid Unicode, with the index."""
    for text in texts:
        try:
            if isinstance(text, str):
                text.encode()
        except UnicodeEncodeError as invalid:
            return TokenizerError(
                f"text contains unpaired surrogates (invalid Unicode) at index {invalid.start}"
            )
    return TokenizerError(str(error))
