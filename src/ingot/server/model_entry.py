"""Entry and Lease: a model of a server, open or not, and the right to use it while it is open."""

import asyncio
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Literal, Self

from ingot.api import LLM
from ingot.server.options import ServedModel

ModelStatus = Literal["unloaded", "loading", "loaded", "sleeping"]


@dataclass(slots=True, eq=False)
class Entry:
    """A model, open or not."""

    model: ServedModel
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    adapting: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while adapters change
    llm: LLM | None = None
    opened: ServedModel | None = None  # as it was opened last, with the GPU that it is on
    planned: int = 0  # bytes that it takes when it is open
    last_context: int = 0  # tokens, when it was last open; 0 before that
    last_slots: int = 0
    leases: int = 0
    used: float = 0.0  # when the last lease ended
    keep_alive: float = math.inf  # seconds after that, as the last client asked
    broken: str | None = None  # what happened to its file, which cannot be opened now
    failure: str | None = None  # why it could not be opened the last time
    closed: ModelStatus = "unloaded"  # its status while it is closed
    listed: int = field(default_factory=lambda: int(time.time()))  # when the server found it

    @property
    def name(self) -> str:
        """Its name in requests."""
        return self.model.name

    @property
    def status(self) -> ModelStatus:
        """Its status under llama-server's names; a model that is closed when idle sleeps."""
        return self.closed if self.llm is None else "loaded"

    @property
    def context(self) -> int | None:
        """The tokens of its context, as far as it is known without opening the model."""
        if self.llm is not None:
            return self.llm.context
        return self.model.engine.context or self.last_context or None

    @property
    def slots(self) -> int:
        """The requests that run at once; 0 if this is not known before the model is open."""
        if self.llm is not None:
            return self.llm.engine.max_running
        return self.model.engine.max_running or self.last_slots

    @property
    def adapters(self) -> tuple[str, ...]:
        """The LoRA adapters that requests may name as their model."""
        return tuple(self.model.engine.adapters or ()) if self.llm is None else self.llm.adapters

    def keep_adapters(self, adapters: Mapping[str, str | os.PathLike[str]]) -> None:
        """Change the adapters that the model has when it is opened again."""
        engine = self.model.engine
        scales = {
            name: each for name, each in (engine.adapter_scales or {}).items() if name in adapters
        }
        engine = replace(engine, adapters=adapters, adapter_scales=scales)
        self.model = replace(self.model, engine=engine)

    @property
    def trouble(self) -> str | None:
        """What happened to its file, so that requests fail until it is valid again; or None."""
        return self.broken if self.llm is None else self.llm.engine.change


class Lease:
    """Keeps a model open until it is released."""

    def __init__(
        self, entry: Entry, llm: LLM, released: Callable[[], None], adapter: str | None = None
    ) -> None:
        """`adapter`: the LoRA adapter that the client named as its model."""
        self.name = entry.name
        self.adapter = adapter
        self.model = entry.model
        self.llm = llm
        self._entry: Entry | None = entry
        self._released = released
        entry.leases += 1

    def release(self) -> None:
        """End the lease; calling it twice is harmless."""
        if self._entry is not None:
            self._entry.leases -= 1
            self._entry.used = time.monotonic()
            self._entry = None
            self._released()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
