"""StatusHistory: what the server did in the last two minutes, for dashboards that open later.

Once a second it keeps the counters of every open model. It also keeps the last requests that have
ended, with the seconds that each part took. It does not know HTTP.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields

from ingot.engine import Timings
from ingot.engine.stats import EngineStats
from ingot.server.catalog import Catalog
from ingot.server.http.access_log import AccessRecord

WINDOW_SECONDS = 120
_REQUESTS = 24  # that are kept


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters and gauges of a model that dashboards plot; the fields of `EngineStats`."""

    running: int
    waiting: int
    steps: int
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    text_steps: int
    guessed_tokens: int
    accepted_tokens: int
    blocks: int
    blocks_held: int
    blocks_kept: int

    @classmethod
    def of(cls, stats: EngineStats) -> "Counts":
        """The part of an engine's state that is kept."""
        return cls(**{field.name: getattr(stats, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Sample:
    """The models at one time."""

    at: float
    models: dict[str, Counts]


@dataclass(frozen=True, slots=True)
class Ended:
    """A completion that has ended."""

    id: str
    model: str
    at: float
    timings: Timings


class StatusHistory:
    """Samples and ended requests, oldest first. All methods belong to one event loop."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives the time in seconds."""
        self._catalog = catalog
        self._clock = clock
        self.samples: deque[Sample] = deque(maxlen=WINDOW_SECONDS)
        self.ended: deque[Ended] = deque(maxlen=_REQUESTS)

    def age(self, at: float) -> float:
        """Seconds since a time of a sample or of a request's end."""
        return self._clock() - at

    def take(self) -> None:
        """Keep the present state."""
        models = {
            entry.name: Counts.of(entry.llm.stats)
            for entry in self._catalog.entries.values()
            if entry.llm is not None
        }
        self.samples.append(Sample(self._clock(), models))

    def end(self, record: AccessRecord) -> None:
        """Keep the completions of a request that has ended."""
        for timings in record.timings:
            self.ended.append(Ended(record.id, record.model or "", self._clock(), timings))

    async def watch(self) -> None:
        """Keep the state once a second, until it is cancelled."""
        while True:
            self.take()
            await asyncio.sleep(1.0)
