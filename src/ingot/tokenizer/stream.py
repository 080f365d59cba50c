"""Ids to text, piece by piece, as a model gives them.

Comes in: one id at a time. Goes out: the text that is certain by then, so that a character
whose bytes are spread over several tokens comes whole. The pieces together are what decoding
all ids at once gives.
"""

from codecs import getincrementaldecoder

from ingot.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes one sequence of ids; not for several threads at once."""

    def __init__(
        self, tokenizer: Tokenizer, skip_special: bool = False, skip_bytes: int = 0
    ) -> None:
        """`skip_bytes` at the beginning are known already and come in no piece."""
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._skip_bytes = skip_bytes
        self._utf8 = getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that this id makes certain; often all of it, sometimes none."""
        text = self._tokenizer.decode_bytes([id], self._skip_special)
        known = min(self._skip_bytes, len(text))
        self._skip_bytes -= known
        return self._utf8.decode(text[known:])

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never finished."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
