"""Text to ids and back, from the metadata of a GGUF file alone.

Comes in: `str` or `bytes`; goes out: ids, and bytes or `str` again. The ids are those
llama.cpp gives for the same file and flags. The work is done natively (native/tokenizer/),
built when the first text or id comes.

Control and unknown tokens are found in a text only with `parse_special=True`; without it no
text becomes one (llama.cpp lets RWKV's `<s>` through). Tokens of type user-defined are always
found, as in SentencePiece and llama.cpp: models were trained that way (Gemma's line ends are
such tokens). Tokens that a chat format steers with stay control tokens, also those of gpt-oss,
which llama.cpp makes user-defined to show them.

Invalid UTF-8 in `bytes`: byte-level vocabularies see U+FFFD for every byte that starts no
character, as in llama.cpp; SentencePiece gives the tokens of the bytes.

Decoding joins the bytes of the tokens and nothing else: a space that a vocabulary puts before
every text comes back. It does not know chat templates.
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


class Tokenizer:
    """The vocabulary of a file, ready to use from any number of threads."""

    def __init__(self, metadata: Metadata) -> None:
        self._vocabulary = describe(metadata)

    @classmethod
    def from_gguf(cls, path: str | PathLike[str]) -> Self:
        """The tokenizer of a file; one that holds a vocabulary and no tensors will do."""
        return cls(GgufLoader(path).metadata)

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Self:
        """The tokenizer of a file that is open already."""
        return cls(metadata)

    @cached_property
    def _core(self) -> Core:
        # Two threads that come here at once build it twice; either result will do.
        return build(self._vocabulary)

    def __repr__(self) -> str:
        cut = f", pre {self.pre!r}" if self.pre else ""
        return f"Tokenizer({self.kind!r}{cut}, {self.vocab_size} tokens)"

    @property
    def kind(self) -> str:
        """The vocabulary kind, as the file names it: gpt2, llama, bert, t5 or rwkv."""
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
        """The token that starts a text."""
        return self._vocabulary.named.bos

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts the token that starts a text in front of it."""
        return self.bos_id is not None and self.encode("")[:1] == [self.bos_id]

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text."""
        return self._vocabulary.named.eos

    @property
    def eog_ids(self) -> frozenset[int]:
        """All tokens with which a model ends what it says."""
        return self._core.ends

    @property
    def middle_ids(self) -> Mapping[str, int]:
        """The tokens to fill in the middle with: `fim_pre`, `fim_suf`, `fim_mid`, ... if any."""
        return self._core.middle

    def encode(
        self,
        text: str | bytes,
        add_special: bool = True,
        parse_special: bool = False,
        plain_spans: Sequence[tuple[int, int]] = (),
    ) -> list[int]:
        """The ids of a text.

        `add_special` puts the tokens around it that the file asks for (BOS, EOS, SEP).
        `parse_special` takes the texts of control tokens for these tokens, except where they
        touch one of `plain_spans`: (begin, end) in characters of a str, in bytes of bytes.
        """
        core = self._core.tokenizer
        try:
            return core.encode(text, add_special, parse_special, list(plain_spans))
        except ValueError as error:
            raise TokenizerError(str(error)) from None
        except TypeError:
            raise TokenizerError("plain_spans takes pairs (begin, end) of whole numbers") from None

    def encode_array(
        self, text: str | bytes, add_special: bool = True, parse_special: bool = False
    ) -> NDArray[np.int32]:
        """The ids of a text in an array, which takes a tenth of the memory of a list."""
        try:
            return self._core.tokenizer.encode_array(text, add_special, parse_special)
        except ValueError as error:
            raise TokenizerError(str(error)) from None

    def encode_batch(
        self,
        texts: Iterable[str | bytes],
        add_special: bool = True,
        parse_special: bool = False,
        threads: int | None = None,
    ) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        count = config().threads if threads is None else threads
        try:
            return self._core.tokenizer.encode_batch(list(texts), add_special, parse_special, count)
        except ValueError as error:
            raise TokenizerError(str(error)) from None

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """The text of ids. Bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids, skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The bytes of ids, one after the other; without control tokens if asked."""
        try:
            return self._core.tokenizer.decode(list(ids), skip_special)
        except ValueError as error:
            raise TokenizerError(str(error)) from None

    def token_bytes(self, id: int) -> bytes:
        """What one token stands for: nothing, if it is of an unused type."""
        return self.decode_bytes([id])

    def token_type(self, id: int) -> TokenType:
        """What kind of token an id is."""
        self.token_bytes(id)  # refuses what is no id
        return TokenType(self._core.vocabulary.type(id))

    def ids_of_type(self, kind: TokenType) -> list[int]:
        """All tokens of a kind."""
        return self._core.vocabulary.ids_of_type(kind)

    def is_control(self, id: int) -> bool:
        """Whether a token is no text: it is found only when asked and skipped on demand."""
        return self.token_type(id) in (TokenType.CONTROL, TokenType.UNKNOWN)

    def control_tokens(self) -> Mapping[str, int]:
        """The control tokens by their text."""
        return self._controls

    @cached_property
    def _controls(self) -> Mapping[str, int]:
        ids = self._core.vocabulary.ids_of_type(TokenType.CONTROL)
        return MappingProxyType({self._vocabulary.tokens[id]: id for id in ids})
