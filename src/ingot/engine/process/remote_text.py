"""RemoteText: what a client knows of a text that is generated in another process.

In: the news of steps. Out: the same as of a text in this process, to the handle of the request.
"""

import time

from ingot.engine.channel import Channel
from ingot.engine.process.messages import End, News
from ingot.engine.request import Completion, RequestState, Timings
from ingot.engine.text_task import Asked
from ingot.engine.transcript import Written
from ingot.engine.wakeups import Outbox
from ingot.sampling import SampledToken


class RemoteText:
    """A text, as far as its news have come."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.prompt = asked.prompt
        self.channel: Channel[Completion] = Channel()
        self.transcript = Written()
        self.seed = 0  # known when the request is accepted
        self.state = RequestState.QUEUED
        self._came = time.perf_counter()
        self._began: float | None = None
        self._first: float | None = None
        self._reused = 0
        self._ended: Timings | None = None

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far, as they arrive here."""
        if self._ended is not None:
            return self._ended
        now, tokens = time.perf_counter(), len(self.transcript.sampled)
        began, first = self._began or now, self._first or now
        return Timings(
            prompt_tokens=len(self.prompt),
            prompt_seconds=first - began if self._first else 0.0,
            generated_tokens=tokens,
            steps=max(tokens - 1, 0),
            generation_seconds=now - first,
            queue_seconds=began - self._came,
            reused_tokens=self._reused,
        )

    def take(self, news: News, outbox: Outbox) -> None:
        """Add what a step has brought; readers are called back through `outbox`."""
        self.channel.outbox = outbox
        for progress in news.progress:
            if self._began is None:
                self._began, self._reused = time.perf_counter(), progress.done
                self.state = RequestState.PROMPT
            self.channel.write(progress)
        if news.tokens:
            if self._first is None:
                self._first = time.perf_counter()
                self.state = RequestState.GENERATING
            self.transcript.sampled.extend(
                token if isinstance(token, SampledToken) else SampledToken(token)
                for token in news.tokens
            )
        if news.text:
            self.transcript.pieces.append(news.text)
            self.channel.write(news.text)
        if news.end is not None:
            self._end(news.end)

    def fail(self, error: BaseException) -> None:
        """End it because its process is gone."""
        self.channel.outbox = None
        self.channel.fail(error)

    def _end(self, end: End) -> None:
        self._ended = end.timings
        if end.done is not None:
            self.transcript.finish_reason = end.done.finish_reason
            self.channel.finish(end.done)
            self.channel.publish()
        else:
            assert end.fault is not None, "one of the two"
            self.channel.fail(end.fault.error())
