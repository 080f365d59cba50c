"""Request: the caller's handle to a text that is being generated.

Iterate over it, or `async for`, for the pieces; call `result` or `await` it for the whole. Any
thread may read it or cancel it. A request that nobody refers to any more is cancelled.
"""

import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from ingot.engine.channel import Progress, Wish
from ingot.engine.wakeups import Listener, LoopWaits
from ingot.errors import IncompleteTextError, RequestCancelledError
from ingot.sampling import FinishReason, SampledToken, SamplingParams, TokenLogprobs

if TYPE_CHECKING:
    from ingot.arrays import Ints
    from ingot.engine.adapters import AdapterUse
    from ingot.engine.channel import Channel
    from ingot.engine.text_task import Asked
    from ingot.engine.transcript import Written
    from ingot.sampling.fields import SamplingFields

OnProgress = Callable[[int, int], None]  # prompt tokens done, prompt tokens in all


class RequestState(StrEnum):
    """The states of a request."""

    QUEUED = "queued"  # waiting for its turn, perhaps after a preemption
    PROMPT = "prompt"  # prefill
    GENERATING = "generating"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Timings:
    """Tokens, and the seconds from step to step; requests that run together share them."""

    prompt_tokens: int
    prompt_seconds: float  # from its turn until the first token can be sampled
    generated_tokens: int
    steps: int  # runs of the model after the prompt: the first token needs none
    generation_seconds: float  # of those steps and of sampling
    queue_seconds: float = 0.0  # before its turn
    reused_tokens: int = 0  # of the prompt, which were in the cache
    guessed_tokens: int = 0  # by speculation
    accepted_tokens: int = 0  # of those, which were right

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second; 0 before the prompt is done."""
        return self.prompt_tokens / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def generation_rate(self) -> float:
        """Tokens after the first per second; 0 before the second."""
        more = self.generated_tokens - 1
        return more / self.generation_seconds if more > 0 and self.generation_seconds else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    timings: Timings
    seed: int  # the same seed gives the same text
    stopped_by: str | int | None = None  # the stop string, or the token that ended the text
    logprobs: tuple[TokenLogprobs, ...] = ()  # of each token by the model, if asked for
    chain_logprobs: tuple[TokenLogprobs, ...] = ()  # and after the sampler chain
    ending: TokenLogprobs | None = None  # of the token that ended the text, which is not in it
    has_schema: bool = False  # whether the text was to follow the schema of an object
    _object: Any = field(default=None, repr=False)

    @property
    def parsed(self) -> Any:
        """The object that the text describes; None if no schema was given.

        If a limit cut the text off, there is none: this raises `IncompleteTextError`.
        """
        if self.has_schema and self.is_cut:
            raise IncompleteTextError(
                f"the text was cut off after {len(self.token_ids)} tokens (finish_reason "
                f"{self.finish_reason!r}), so it is not a complete object; pass a larger limit, "
                "such as max_tokens, or look at text"
            )
        return self._object

    @property
    def is_cut(self) -> bool:
        """Whether a limit ended the text: `max_tokens`, the context or a time limit."""
        return self.finish_reason != "stop"

    def __str__(self) -> str:
        return self.text


class Text(Protocol):
    """A text that is being generated, wherever that is."""

    channel: "Channel[Completion]"
    prompt: "Ints"
    asked: "Asked"

    @property
    def transcript(self) -> "Written":
        """What is written so far."""

    @property
    def state(self) -> RequestState:
        """Its state, if it has not ended."""

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far."""

    @property
    def seed(self) -> int:
        """The seed of the sampler."""


class Request(Iterator[str], AsyncIterator[str]):
    """A text to come; its properties are correct at any time."""

    def __init__(
        self,
        text: Text,
        wake: Callable[[], None],
        fork: Callable[[dict[str, Any]], "Request"],
        progress: OnProgress | None = None,
    ) -> None:
        """`wake` has the engine look at `text` again, because it was cancelled."""
        self._task = text
        self._channel = channel = text.channel
        self._wake = wake
        self._fork = fork
        self.progress = progress  # called by whoever iterates, during prefill
        self._read = 0  # events
        self._waits: LoopWaits | None = None  # of the event loop that reads it
        # Not the channel: an error in it may refer to this request, which would then live forever.
        self._dropped = weakref.finalize(self, _cancel, channel.wish, wake)
        self._dropped.atexit = False

    @property
    def adapter(self) -> "AdapterUse | None":
        """The LoRA adapter that it runs with."""
        return self._task.asked.adapter

    @property
    def priority(self) -> int:
        """Its place among the requests that wait: those with the lowest value go first."""
        return self._task.asked.priority

    def __next__(self) -> str:
        while True:
            self._channel.wait_beyond(self._read)
            if (piece := self._take()) is not None:
                return piece
            if self._is_read:
                self._raise_error()
                raise StopIteration

    def __aiter__(self) -> "Request":
        return self

    async def __anext__(self) -> str:
        while True:
            if (piece := self._take()) is not None:
                return piece
            if self._is_read:
                self._raise_error()
                raise StopAsyncIteration
            await self._called_back(lambda wake: self._channel.call_beyond(self._read, wake))

    def take_ready(self) -> str:
        """The text of all pieces that are there already, for a reader that is late."""
        pieces = []
        while (piece := self._take()) is not None:
            pieces.append(piece)
        return "".join(pieces)

    def __await__(self) -> Generator[Any, None, Completion]:
        return self._whole().__await__()

    async def _whole(self) -> Completion:
        await self._called_back(self._channel.call_at_end)
        return self._parsed(self._channel.result())

    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the whole text; a request that failed or was cancelled raises its error."""
        return self._parsed(self._channel.result(timeout))

    def cancel(self) -> None:
        """Stop generating; the text so far stays. A text that has ended does not change."""
        self._dropped()

    close = cancel

    def fork(self, **changes: "Unpack[SamplingFields]") -> "Request":
        """Start a second request that continues the text as it is now.

        `changes` are the parameters that differ, such as `seed` (by default a new one). Both
        requests share the KV cache up to this point. The text of the fork begins with what is
        written now; iterating over it gives only what it adds.
        """
        return self._fork(dict(changes))

    @property
    def state(self) -> RequestState:
        """Its state."""
        if not self._channel.is_ended:
            return self._task.state
        if self._channel.error is None:
            return RequestState.DONE
        cancelled = isinstance(self._channel.error, RequestCancelledError)
        return RequestState.CANCELLED if cancelled else RequestState.FAILED

    @property
    def text(self) -> str:
        """The text so far."""
        return self._task.transcript.text

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The tokens of the prompt."""
        return tuple(self._task.prompt.tolist())

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The generated tokens so far."""
        return self._task.transcript.token_ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the text ended; None if it has not."""
        return self._task.transcript.finish_reason

    @property
    def seed(self) -> int:
        """The seed of the sampler, given or random."""
        return self._task.seed

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the tokens so far by the model, if they were asked for."""
        return self._task.transcript.logprobs

    def sampled_tokens(self, start: int = 0) -> tuple[SampledToken, ...]:
        """The tokens from a position on, each with the log-probabilities that were asked for."""
        return tuple(self._task.transcript.sampled[start:])

    @property
    def params(self) -> SamplingParams:
        """The sampling parameters."""
        return self._task.asked.params

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far."""
        return self._task.timings

    def _parsed(self, done: Completion) -> Completion:
        parse = self._task.asked.parse
        if parse is None:
            return done
        made = None if done.is_cut else parse(done.text)
        return replace(done, has_schema=True, _object=made)

    @property
    def _is_read(self) -> bool:
        return self._channel.is_published and self._read == len(self._channel.events)

    def _take(self) -> str | None:
        """The next piece, if there is one; reports progress that came before it."""
        while self._read < len(self._channel.events):
            event = self._channel.events[self._read]
            self._read += 1
            if isinstance(event, str):
                return event
            if self.progress:
                self.progress(event.done, event.total)
        return None

    def _raise_error(self) -> None:
        error = self._channel.error
        if error is not None and not isinstance(error, RequestCancelledError):
            raise error

    async def _called_back(self, register: Callable[[Listener], None]) -> None:
        """Wait for a listener to be called back; cancelling the wait cancels the request."""
        import asyncio  # noqa: PLC0415 (loaded already by whoever awaits)

        loop = asyncio.get_running_loop()
        if self._waits is None or self._waits.loop is not loop:
            self._waits = LoopWaits(loop, self._channel.check)
        try:
            await self._waits.wait(register)
        except asyncio.CancelledError:
            self.cancel()
            raise


def _cancel(wish: Wish, wake: Callable[[], None]) -> None:
    wish.cancelled = True
    wake()


__all__ = [
    "Completion",
    "OnProgress",
    "Progress",
    "Request",
    "RequestState",
    "Timings",
]
