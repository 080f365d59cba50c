"""A tokenizer's vocabulary in the form llguidance reads.

In: any `Tokenizer`. Out: an `LLTokenizer` over the bytes of its tokens, and an encoder of bytes to
tokens that spell exactly these bytes: some vocabularies put a space before a text or normalize it,
which must not happen in the middle of an output. llguidance is imported on first use.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ingot.errors import GrammarError
from ingot.once import once
from ingot.tokenizer import Tokenizer, TokenType

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_MARK = b"\x02"  # part of no token, so that what follows is encoded as the middle of a text
# Some vocabularies leave out control characters and the first bytes of the rarest planes.
_BYTES_OF_TEXT = (*b"\t\n\r", *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1))
# Bytes of a token. llguidance's trie has 1024 levels and panics at longer tokens, which no real
# vocabulary has. They count as tokens without text, which no grammar allows.
_LONGEST = 1000
_NOT_TEXT = (TokenType.CONTROL, TokenType.UNKNOWN)


class TokenTexts:
    """The bytes of every token, and the tokens that stand for text by their bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = (tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size))
        self.texts = [text if len(text) <= _LONGEST else b"" for text in texts]
        self.no_text = [id for kind in _NOT_TEXT for id in tokenizer.ids_of_type(kind)]

    @cached_property
    def by_bytes(self) -> Mapping[bytes, int]:
        """Tokens by their bytes; the first one if several have the same bytes."""
        none = set(self.no_text)
        ids = range(len(self.texts) - 1, -1, -1)
        return {self.texts[id]: id for id in ids if self.texts[id] and id not in none}

    @cached_property
    def writes_all_text(self) -> bool:
        """Whether every byte of valid text has its own token."""
        return all(bytes([byte]) in self.by_bytes for byte in _BYTES_OF_TEXT)


class GrammarVocabulary:
    """The tokens of one model for llguidance.

    It is built once, which takes 0.2 s for 50,000 tokens and more than a second for 250,000;
    llguidance holds the GIL meanwhile.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @once
    def tokens(self) -> TokenTexts:
        """The bytes of all tokens."""
        return TokenTexts(self._tokenizer)

    @once
    def native(self) -> "LLTokenizer":
        """The vocabulary in llguidance's form."""
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415 (0.1 s)

        ends = self._ends()
        tokens = _Tokens(self.tokens, ends[0], ExactEncoder(self._tokenizer, self.tokens))
        return LLTokenizer(TokenizerWrapper(tokens), eos_token=ends)

    def as_lists(self) -> tuple[list[bytes], list[int], list[int]]:
        """The bytes of all tokens, the tokens that are not text, and the end-of-text tokens."""
        return self.tokens.texts, self.tokens.no_text, self._ends()

    def _ends(self) -> list[int]:
        ends = sorted(self._tokenizer.eog_ids)
        if not ends:
            raise GrammarError("grammars need a vocabulary with an end-of-text token")
        return ends

    def control_token(self, text: str) -> int | None:
        """The control token with this text, if there is one."""
        return self._tokenizer.control_tokens().get(text)


class ExactEncoder:
    """Encodes bytes as tokens that spell exactly these bytes, as in the middle of a text."""

    def __init__(self, tokenizer: Tokenizer, tokens: TokenTexts) -> None:
        self._tokenizer = tokenizer
        self._by_bytes = tokens.by_bytes
        self._longest = max(map(len, tokens.by_bytes), default=0)

    def encode(self, text: bytes) -> list[int]:
        """The tokens; those up to the first byte that no token fits."""
        ids = self._tokenizer.encode(text, add_special=False)
        if self._tokenizer.decode_bytes(ids) == text:
            return ids
        ids = self._tokenizer.encode(_MARK + text, add_special=False)
        for first in range(1, min(len(ids), 4)):
            before = self._tokenizer.decode_bytes(ids[:first])
            if before.endswith(_MARK) and self._tokenizer.decode_bytes(ids[first:]) == text:
                return ids[first:]
        return self._encode_greedily(text)

    def _encode_greedily(self, text: bytes) -> list[int]:
        """Take the longest token each time, until no token fits."""
        ids: list[int] = []
        at = 0
        while at < len(text):
            sizes = range(min(self._longest, len(text) - at), 0, -1)
            size = next((n for n in sizes if text[at : at + n] in self._by_bytes), 0)
            if size == 0:
                break
            ids.append(self._by_bytes[text[at : at + size]])
            at += size
        return ids


class _Tokens:
    """The attributes by which llguidance reads a vocabulary.

    It must not refer to its owner: the garbage collector cannot see llguidance's objects.
    """

    def __init__(self, tokens: TokenTexts, end: int, encoder: ExactEncoder) -> None:
        self.tokens = tokens.texts
        self.special_token_ids = tokens.no_text
        self.eos_token_id = end
        self.bos_token_id = None  # an output does not begin a text
        self._encoder = encoder

    def __call__(self, text: bytes) -> list[int]:
        return self._encoder.encode(text)
