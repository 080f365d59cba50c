"""Log-probabilities in the form of OpenAI's older endpoint: parallel lists."""

import codecs
from collections.abc import Sequence

from pydantic import BaseModel

from ingot.sampling import TokenLogprobs
from ingot.server.openai.answers import logprob
from ingot.tokenizer import Tokenizer


class CompletionLogprobs(BaseModel):
    """Of each token: its text, its log-probability, the likeliest in its place, its place."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class LogprobsWriter:
    """Writes those of a text, piece by piece."""

    def __init__(self, tokenizer: Tokenizer, offset: int = 0) -> None:
        self._tokenizer = tokenizer
        self._offset = offset  # in characters, of the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, found: Sequence[TokenLogprobs], first: int | None = None) -> CompletionLogprobs:
        """The next tokens; `first` is one before them, of which nothing is known."""
        made = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        if first is not None:
            self._place(made, first)
            made.token_logprobs.append(None)
            made.top_logprobs.append(None)
        for entry in found:
            self._place(made, entry.token)
            made.token_logprobs.append(logprob(entry.logprob))
            top = {self._name(token): logprob(value) for token, value in entry.top}
            made.top_logprobs.append(top)
        return made

    def _place(self, made: CompletionLogprobs, token: int) -> None:
        made.tokens.append(self._name(token))
        made.text_offset.append(self._offset)
        self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token)))

    def _name(self, token: int) -> str:
        """A token's text; of one that holds parts of characters, its bytes."""
        content = self._tokenizer.token_bytes(token)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)
