"""StreamDecoder: token ids to text, piece by piece.

In: one id at a time. Out: the text that is certain by then; a character whose bytes are spread over
several tokens comes whole. The pieces together equal the text of all ids decoded at once.
"""

from codecs import getincrementaldecoder

from ingot.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes one sequence of ids; not thread-safe."""

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool = False, skip_bytes: int = 0
    ) -> None:
        """`skip_bytes`: bytes at the beginning to leave out, because they are known."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._skip_bytes = skip_bytes
        self._utf8 = getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """Add an id; return the text that is certain now, maybe none."""
        text = self._tokenizer.decode_bytes([id], self._skip_special)
        known = min(self._skip_bytes, len(text))
        self._skip_bytes -= known
        return self._utf8.decode(text[known:])

    def flush(self) -> str:
        """End the text; return U+FFFD if its last character is incomplete."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
