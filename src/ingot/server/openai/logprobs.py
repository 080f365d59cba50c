"""Logprobs in both of OpenAI's forms: chat's objects, and the parallel lists of completions."""

import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from ingot.sampling import TokenLogprobs
from ingot.tokenizer import Tokenizer

_MIN_LOGPROB = -9999.0  # OpenAI's value for minus infinity, which JSON lacks


class TopLogprob(BaseModel):
    """A token that could have been sampled, and its logprob."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    """A sampled token, with the most likely tokens in its place."""

    top_logprobs: list[TopLogprob]


class CompletionLogprobs(BaseModel):
    """For each token: its text, its logprob, the most likely tokens in its place, its offset."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def token_logprobs(
    tokenizer: Tokenizer, found: Sequence[TokenLogprobs]
) -> Iterator[dict[str, object]]:
    """The logprobs of a chat completion, as `TokenLogprob` describes them."""
    for entry in found:
        top = [_token(tokenizer, token, value) for token, value in entry.top]
        yield {**_token(tokenizer, entry.token, entry.logprob), "top_logprobs": top}


def _token(tokenizer: Tokenizer, token: int, value: float) -> dict[str, object]:
    content = tokenizer.token_bytes(token)
    return {
        "token": content.decode("utf-8", "replace"),
        "logprob": _finite(value),
        "bytes": list(content),
    }


@dataclass(slots=True)
class CompletionLogprobsWriter:
    """Writes a completion's logprobs as parallel lists, piece by piece."""

    tokenizer: Tokenizer
    _offset: int = 0  # of the next token, in characters
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def write(
        self, found: Sequence[TokenLogprobs], first: int | None = None
    ) -> dict[str, Iterator[object]]:
        """The next tokens, as `CompletionLogprobs` describes them, with iterators for lists.

        `first` is a token before them that has no logprob. Offsets are those of the next call, if
        the iterators are read to their end before it.
        """
        before = [] if first is None else [first]
        tokens = [*before, *(entry.token for entry in found)]
        return {
            "tokens": (self._name(token) for token in tokens),
            "token_logprobs": iter([*(None for _ in before), *(_finite(e.logprob) for e in found)]),
            "top_logprobs": self._top(found, len(before)),
            "text_offset": (self._next_offset(token) for token in tokens),
        }

    def _top(
        self, found: Sequence[TokenLogprobs], without: int
    ) -> Iterator[dict[str, float] | None]:
        yield from (None for _ in range(without))
        for entry in found:
            yield {self._name(token): _finite(value) for token, value in entry.top}

    def _next_offset(self, token: int) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(self.tokenizer.token_bytes(token)))
        return offset

    def _name(self, token: int) -> str:
        """A token's text, or its bytes if they are not valid UTF-8."""
        content = self.tokenizer.token_bytes(token)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


def _finite(value: float) -> float:
    """A logprob that JSON can hold."""
    return value if math.isfinite(value) else _MIN_LOGPROB
