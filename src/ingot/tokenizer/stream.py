"""Ids to text, piece by piece, as a model gives them.

Comes in: one id at a time. Goes out: the text that is certain by then, so that a character
whose bytes are spread over several tokens comes whole. The pieces together are what decoding
all ids at once gives.
"""

from codecs import getincrementaldecoder

from ingot.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes one sequence of ids; not for several threads at once."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        """The text that this id makes certain; often all of it, sometimes none."""
        return self._utf8.decode(self._tokenizer.decode_bytes([id], self._skip_special))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never finished."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
