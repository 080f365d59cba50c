"""Catalog: the models of a server by name, each opened at its first request.

A model stays open while there is a lease on it, and for some time after. Requests that arrive
while it opens wait for it. A file that was changed or replaced is opened again as soon as there is
no lease on the model. It does not know HTTP.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from ingot.api import LLM
from ingot.errors import IngotError, ModelChangedError, ThreadLimitError
from ingot.gguf import GgufLoader
from ingot.server.options import ServedModel
from ingot.server.threads import run_in_thread

LATEST = ":latest"  # what Ollama adds to a name without a tag
_LOOK_SECONDS = 10.0  # between two checks of the models, at most


class UnknownModelError(IngotError):
    """The server has no model of that name."""


@dataclass(slots=True)
class Entry:
    """A model, open or not."""

    model: ServedModel
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    llm: LLM | None = None
    leases: int = 0
    used: float = 0.0  # when the last lease ended
    keep_alive: float = math.inf  # seconds after that, as the last client asked
    broken: str | None = None  # what happened to its file, which cannot be opened now
    listed: int = field(default_factory=lambda: int(time.time()))  # when the server started

    @property
    def name(self) -> str:
        """Its name in requests."""
        return self.model.name

    @property
    def trouble(self) -> str | None:
        """What happened to its file, so that requests fail until it is valid again; or None."""
        return self.broken if self.llm is None else self.llm.engine.change


class Lease:
    """Keeps a model open until it is released."""

    def __init__(self, entry: Entry, llm: LLM) -> None:
        self.name = entry.name
        self.llm = llm
        self._entry: Entry | None = entry
        entry.leases += 1

    def release(self) -> None:
        """End the lease; calling it twice is harmless."""
        if self._entry is not None:
            self._entry.leases -= 1
            self._entry.used = time.monotonic()
            self._entry = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Catalog:
    """The models of a server. All methods belong to one event loop."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        idle_seconds: float | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`report` takes lines about models that are loaded to a GPU or opened again."""
        self._entries = {model.name: Entry(model) for model in models}
        self._idle_seconds = idle_seconds
        self._report = report or _discard

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The models by name, in the order they were given."""
        return MappingProxyType(self._entries)

    @property
    def default(self) -> Entry:
        """The model of requests without a model name."""
        return next(iter(self._entries.values()))

    def find(self, name: str | None) -> Entry:
        """The model of a name. A server with one model uses it for every name."""
        if name is None or len(self._entries) == 1:
            return self.default
        if (entry := self.find_exactly(name)) is None:
            known = ", ".join(self._entries)
            raise UnknownModelError(f"there is no model {name!r}; this server has: {known}")
        return entry

    def find_exactly(self, name: str) -> Entry | None:
        """The model that has this name, with or without Ollama's `:latest`; None if none has."""
        return self._entries.get(name) or self._entries.get(name.removesuffix(LATEST))

    async def lease(self, name: str | None = None) -> Lease:
        """A lease on the model of a name, which is opened if necessary."""
        entry = self.find(name)
        async with entry.opening:
            await self._close_outdated(entry)
            if entry.llm is None:
                entry.llm = await self._open(entry)
            return Lease(entry, entry.llm)

    async def _close_outdated(self, entry: Entry) -> None:
        """Close a model whose file was changed or replaced, if there is no lease on it."""
        if entry.llm is None or entry.leases:
            return
        if change := entry.llm.engine.change:
            entry.broken = change
        elif not (entry.llm.engine.is_replaced and await run_in_thread(_is_valid, entry.model)):
            return
        await _close(entry)

    async def _open(self, entry: Entry) -> LLM:
        try:
            llm = await run_in_thread(_open, entry.model, self._report)
        except (IngotError, OSError) as error:
            if entry.broken is None:
                raise
            raise ModelChangedError(f"{entry.broken}; it cannot be opened now: {error}") from error
        if entry.broken is not None:
            self._report(f"{entry.name}: opened again, because {entry.broken}")
        entry.broken = None
        return llm

    def check(self) -> None:
        """Raise an error if a model has failed, hangs, or its file was changed."""
        for entry in self._entries.values():
            if entry.trouble is not None:
                raise ModelChangedError(f"{entry.name}: {entry.trouble}")
            if entry.llm is not None:
                entry.llm.engine.check()

    async def watch(self) -> None:
        """Close idle models and reopen changed ones while the server runs."""
        pause = min((self._idle_seconds or math.inf) / 4, _LOOK_SECONDS)
        while True:
            await asyncio.sleep(pause)
            with suppress(ThreadLimitError):  # the next round may have one
                await self.close_idle()
                await self.open_broken()

    async def open_broken(self) -> None:
        """Reopen models whose files were changed, if the files are valid now."""
        for entry in self._entries.values():
            if entry.trouble is not None:
                with suppress(ModelChangedError):
                    (await self.lease(entry.name)).release()

    async def close_idle(self) -> None:
        """Close models that have been idle for too long."""
        for entry in self._entries.values():
            async with entry.opening:
                if not entry.leases and self.seconds_left(entry) <= 0:
                    await _close(entry)

    def seconds_left(self, entry: Entry) -> float:
        """Until a model is closed, if no request comes; a client can only shorten this time."""
        limit = min(entry.keep_alive, self._idle_seconds or math.inf)
        return limit if entry.leases else limit - (time.monotonic() - entry.used)

    async def close(self) -> None:
        """Close all models; current requests fail."""
        for entry in self._entries.values():
            async with entry.opening:
                await _close(entry)


def _is_valid(model: ServedModel) -> bool:
    """Whether a model's file has a valid header and all of its tensors."""
    try:
        GgufLoader(model.path).close()
    except (IngotError, OSError):
        return False
    return True


def _open(model: ServedModel, report: Callable[[str], None]) -> LLM:
    options: dict[str, Any] = {
        name: getattr(model.engine, name) for name in model.engine.__dataclass_fields__
    }
    sending = False

    def progress(_: int, total: int) -> None:
        nonlocal sending
        if not sending:
            report(f"{model.name}: loading {total / 1e9:.2f} GB of weights to the GPU")
        sending = True

    llm = LLM(
        model.path,
        chat_template=model.chat_template,
        pooling=model.pooling,
        progress=progress,
        **options,
    )
    if llm.engine.model.placement is not None:
        report(f"{model.name}: {llm.engine.model.placement}")
    return llm


def _discard(_: str) -> None:
    pass


async def _close(entry: Entry) -> None:
    if entry.llm is not None:
        llm, entry.llm = entry.llm, None
        try:
            await run_in_thread(llm.close)
        except ThreadLimitError:
            entry.llm = llm  # it is closed later
            raise


def model_name(path: Path) -> str:
    """A model's name by default: the file name without its extension."""
    return path.name.removesuffix(".gguf")
