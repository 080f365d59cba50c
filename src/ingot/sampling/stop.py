"""StopChecker: when a text ends, and which text may be shown before that.

In: one token at a time. Out: the text that is certain by then, and the finish reason once the text
has ended. A stop sequence is found across the boundaries of tokens. Neither it nor the text after
it is ever shown, so text that may become one is held back. The stop sequence that is complete first
counts, as if characters came one by one. It does not know logits: the sampler chain bans ends
before `min_tokens`.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Literal, NamedTuple

from ingot.sampling.params import SamplingParams
from ingot.tokenizer import StreamDecoder, Tokenizer

# Why a text ended. "stop": the model ended it, or a stop sequence or stop token came; "length":
# max_tokens; "context": it filled the context; "time": time_limit.
FinishReason = Literal["stop", "length", "context", "time"]


class StopStrings:
    """Finds stop sequences in text that comes in pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Add text; return what may be shown now, and the stop sequence if one is complete."""
        if not self._stops:
            return text, None
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, stop = min(found)
            self._held = ""
            return text[:at], stop
        most = min(max(map(len, self._stops)), len(text))
        keep = next((n for n in range(most, 0, -1) if self._may_begin(text[-n:])), 0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """End the text; return what was held back."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self._stops)


class Piece(NamedTuple):
    """The result of one token: text to show, and why the text has ended, if it has."""

    text: str
    finished: FinishReason | None = None
    stopped_by: str | int | None = None  # a stop sequence, or the token that ended the text


class StopChecker:
    """Follows one text from its first token to its end."""

    def __init__(
        self,
        params: SamplingParams,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        skip_bytes: int = 0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._params = params
        self._decoder = StreamDecoder(tokenizer, skip_special, skip_bytes)
        self._strings = StopStrings(params.stop)
        ends = frozenset() if params.ignore_eos else tokenizer.eog_ids
        self._ends = ends | frozenset(params.stop_token_ids)
        self._clock = clock
        self._deadline = None if params.time_limit is None else clock() + params.time_limit
        self.tokens = 0  # so far, without the one that ended the text

    def push(self, token: int) -> Piece:
        """Add a token."""
        if token in self._ends:
            return Piece(self._rest(), "stop", token)
        self.tokens += 1
        text = self._decoder.push(token)
        if self.tokens > self._params.min_tokens:
            text, stop = self._strings.push(text)
            if stop is not None:
                return Piece(text, "stop", stop)
        if self._params.max_tokens is not None and self.tokens >= self._params.max_tokens:
            return self._end(text, "length")
        if self.is_late:
            return self._end(text, "time")
        return Piece(text)

    @property
    def is_late(self) -> bool:
        """Whether the time limit is over."""
        return self._deadline is not None and self._clock() >= self._deadline

    def finish(self) -> str:
        """The text held back so far, for an end from outside (cancelled, context full)."""
        return self._rest()

    def _end(self, text: str, reason: FinishReason) -> Piece:
        return Piece(text + self._rest(), reason)

    def _rest(self) -> str:
        # An incomplete character becomes U+FFFD; even then no stop sequence may be shown.
        shown, stop = self._strings.push(self._decoder.flush())
        return shown if stop is not None else shown + self._strings.flush()
