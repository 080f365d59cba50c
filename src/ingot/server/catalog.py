"""Catalog: the models of a server by name, each opened at its first request.

A model stays open while there is a lease on it, and for some time after. Requests that arrive
while it opens wait for it. A model that needs room for its memory closes those that have been idle
longest, or waits until one is. A file that was changed or replaced is opened again as soon as there
is no lease on the model. It does not know HTTP.
"""

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from ingot import store
from ingot.api import LLM
from ingot.engine.model.plan import ModelPlan
from ingot.errors import (
    AdapterError,
    ConfigError,
    IngotError,
    MemoryShortageError,
    ModelChangedError,
    ThreadLimitError,
)
from ingot.machine import available_memory
from ingot.server.gpu_turns import on_free_gpu
from ingot.server.model_entry import Entry, Lease, ModelStatus
from ingot.server.model_events import ModelEvents
from ingot.server.open_model import Report, is_valid, open_model, plan_of
from ingot.server.options import ServerOptions
from ingot.server.threads import run_in_thread
from ingot.store.hub_cache import repo_of

LATEST = ":latest"  # what Ollama adds to a name without a tag
_OLLAMA = "ollama:"  # what the store's names of its models begin with
_LOOK_SECONDS = 10.0  # between two checks of the models, at most
_DISCOVER_SECONDS = 1.0  # between two searches for new models, at least


class UnknownModelError(IngotError):
    """The server has no model of that name."""


class ModelBusyError(IngotError):
    """The model cannot be closed now, because requests are using it."""


class Catalog:
    """The models of a server. All methods belong to one event loop."""

    def __init__(self, options: ServerOptions, report: Report | None = None) -> None:
        """`report` takes lines about models that are opened."""
        self._options = options
        self._entries = {model.name: Entry(model) for model in options.models}
        self._aliases = {alias: model.name for model in options.models for alias in model.aliases}
        self._idle_seconds = options.idle_unload
        self._report = report or _discard
        self._memory = options.models_memory or available_memory()
        self._admission = asyncio.Lock()  # held while room is made and a model is opened
        self._released = asyncio.Event()  # a lease has ended
        self._looked = -math.inf  # when models were last looked for
        self.events = ModelEvents()
        self.discover()

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The models by name, in the order they were given."""
        return MappingProxyType(self._entries)

    @property
    def default(self) -> Entry:
        """The model of requests without a model name."""
        if not self._entries:
            raise UnknownModelError("this server has no model yet; put one into its folder")
        return next(iter(self._entries.values()))

    def find(self, name: str | None) -> Entry:
        """The model of a name, or of a LoRA adapter's name.

        A server that was given one model uses it for every name.
        """
        if name is None or (len(self._entries) == 1 and self._options.discover is None):
            return self.default
        if (entry := self.find_exactly(name)) is None:
            self.discover()
            entry = self.find_exactly(name)
        if entry is None:
            known = ", ".join(self._entries) or "none"
            raise UnknownModelError(f"there is no model {name!r:.80}; this server has: {known}")
        return entry

    def find_exactly(self, name: str) -> Entry | None:
        """The model that has this name, with or without Ollama's `:latest`; None if none has.

        It may be the name of one of its adapters.
        """
        for given in (name, name.removesuffix(LATEST)):
            # Ollama's clients write the names of its models without the store's prefix.
            for spelled in (given, f"{_OLLAMA}{given}", f"{_OLLAMA}{given}{LATEST}"):
                if entry := self._entries.get(self._aliases.get(spelled, spelled)):
                    return entry
        return next((e for e in self._entries.values() if self.adapter_of(e, name)), None)

    def adapter_of(self, entry: Entry, name: str | None) -> str | None:
        """The adapter of a model that a name means; None if it means the model itself."""
        if name is None or self._aliases.get(name, name) in self._entries:
            return None
        given = (name, name.removesuffix(LATEST))
        return next((each for each in given if each in entry.adapters), None)

    def discover(self, *, at_once: bool = False) -> None:
        """Look for models that are new or gone, if the server does; at most once a second.

        `at_once`: now, because one is known to be new.
        """
        if self._options.discover is None:
            return
        if not at_once and time.monotonic() < self._looked + _DISCOVER_SECONDS:
            return
        self._looked = time.monotonic()
        found = {model.name: model for model in self._options.discover()}
        given = {model.name for model in self._options.models}
        for name in [*self._entries]:
            entry = self._entries[name]
            if name not in found and name not in given and entry.status in ("unloaded", "sleeping"):
                del self._entries[name]
                self.events.publish(name, "model_remove")
        for name, model in found.items():
            if name not in self._entries:
                self._entries[name] = Entry(model)
                self._aliases |= dict.fromkeys(model.aliases, name)

    def add_aliases(self, name: str, aliases: Iterable[str]) -> None:
        """Other names of a model in requests, unless they are names of models themselves."""
        self._aliases |= {alias: name for alias in aliases if alias not in self._entries}

    async def open_first(self) -> None:
        """Open the models that a server opens at its start, or fail."""
        for place, entry in enumerate([*self._entries.values()]):
            if entry.model.opens_at_start or (place == 0 and self._options.models):
                (await self.lease(entry.name)).release()

    async def lease(self, name: str | None = None) -> Lease:
        """A lease on the model of a name, which is opened if necessary."""
        entry = self.find(name)
        async with entry.opening:
            await self._close_outdated(entry)
            if entry.llm is None:
                async with self._admission:
                    entry.llm = await self._open_with_room(entry)
                    entry.last_context, entry.last_slots = entry.context or 0, entry.slots
            adapter = self.adapter_of(entry, name)
            return Lease(entry, entry.llm, self._released.set, adapter)

    async def lease_without_adapter(self, name: str | None = None) -> Lease:
        """The same for what no LoRA adapter can be used for; an adapter's name is an error."""
        lease = await self.lease(name)
        if lease.adapter is not None:
            lease.release()
            raise AdapterError(
                f"{lease.adapter!r:.80} is a LoRA adapter, and embeddings and scores are computed "
                f"without adapters: name the model, {lease.name!r:.80}, or serve a model that the "
                "adapter was merged into (`ingot merge-lora`)"
            )
        return lease

    async def add_adapter(self, model: str | None, adapter: str, path: Path) -> None:
        """Load a LoRA adapter for a model, which has it again whenever it is opened."""
        with await self.lease(model) as lease:
            entry = self._entries[lease.name]
            async with entry.adapting:
                if self.find_exactly(adapter) is not None:
                    raise AdapterError(
                        f"{adapter!r:.80} is the name of a model or an adapter already"
                    )
                await run_in_thread(lease.llm.add_adapter, adapter, path)
                entry.keep_adapters({**(entry.model.engine.adapters or {}), adapter: path})

    async def remove_adapter(self, entry: Entry, adapter: str) -> None:
        """Remove an adapter of a model, open or not; requests that run with it continue."""
        async with entry.adapting, entry.opening:  # nobody waits to open it while another one loads
            if entry.llm is not None:
                await run_in_thread(entry.llm.remove_adapter, adapter)
            kept = dict(entry.model.engine.adapters or {})
            kept.pop(adapter, None)
            entry.keep_adapters(kept)

    async def unload(self, name: str) -> None:
        """Close a model now, unless requests are using it."""
        entry = self.find(name)
        async with entry.opening:
            await self._close_unused(entry)

    async def remove(self, entry: Entry) -> None:
        """Close a model of the store, unless requests are using it, and delete it."""
        async with entry.opening:
            await self._close_unused(entry)
            await run_in_thread(store.remove, entry.name)
        self.discover(at_once=True)

    async def _close_unused(self, entry: Entry) -> None:
        if entry.leases:
            raise ModelBusyError(
                f"{entry.name} is answering {entry.leases} requests; try again when they have ended"
            )
        await self._close(entry, "unloaded")

    async def _open_with_room(self, entry: Entry) -> LLM:
        """Open a model; others that are idle are closed if there is no room for it."""
        plan = await self._plan(entry)
        while self._is_full(entry) and (others := self._others(entry)):
            await self._close_one_of(others)
            plan = await self._plan(entry)
        while True:
            try:
                return await self._open(entry, plan)
            except MemoryShortageError as error:
                idle = [other for other in self._others(entry) if not other.leases]
                if not idle:
                    raise
                self._report(f"{entry.name}: {error}")
                await self._close_one_of(idle)
                plan = await self._plan(entry)

    async def _plan(self, entry: Entry) -> ModelPlan | None:
        """Choose the GPU of a model and plan its memory there."""
        used = [each.opened.engine for each in self._others(entry) if each.opened]
        entry.opened = await run_in_thread(on_free_gpu, entry.model, used)
        plan = await run_in_thread(plan_of, entry.opened)
        entry.planned = plan.total if plan else 0
        return plan

    def _others(self, entry: Entry) -> list[Entry]:
        return [
            each for each in self._entries.values() if each.llm is not None and each is not entry
        ]

    def _is_full(self, entry: Entry) -> bool:
        others = self._others(entry)
        if self._options.models_max is not None and len(others) >= self._options.models_max:
            return True
        if entry.model.engine.device != "cpu" and self._options.models_memory is None:
            return False  # the memory of a GPU is known when the model is opened
        return entry.planned + sum(other.planned for other in others) > self._memory

    async def _close_one_of(self, open_entries: list[Entry]) -> None:
        """Close the model that has been idle longest; if none is, wait until a lease ends."""
        idle = [each for each in open_entries if not each.leases and not each.opening.locked()]
        if not idle:
            self._released.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._released.wait(), _LOOK_SECONDS)
            return
        oldest = min(idle, key=lambda each: each.used)
        async with oldest.opening:  # it is free, so nothing comes between
            self._report(f"{oldest.name}: closed, to make room for another model")
            await self._close(oldest, "unloaded")

    async def _close_outdated(self, entry: Entry) -> None:
        """Close a model whose file was changed or replaced, if there is no lease on it."""
        if entry.llm is None or entry.leases:
            return
        if change := entry.llm.engine.change:
            entry.broken = change
        elif not (entry.llm.engine.is_replaced and await run_in_thread(is_valid, entry.model)):
            return
        await self._close(entry, "unloaded")

    async def _open(self, entry: Entry, plan: ModelPlan | None) -> LLM:
        loop = asyncio.get_running_loop()

        def progress(share: float) -> None:
            told = {"stages": ["text_model"], "current": "text_model", "value": share}
            event = self.events.status
            loop.call_soon_threadsafe(lambda: event(entry.name, "loading", progress=told))

        entry.closed, entry.failure = "loading", None
        self.events.status(entry.name, "loading")
        try:
            model = entry.opened or entry.model
            llm = await run_in_thread(open_model, model, plan, self._report, progress)
        except BaseException as error:
            entry.closed, entry.failure = "unloaded", str(error)
            self.events.status(entry.name, "unloaded", failed=True, error=str(error))
            if entry.broken is None or not isinstance(error, (IngotError, OSError)):
                raise
            raise ModelChangedError(f"{entry.broken}; it cannot be opened now: {error}") from error
        if entry.broken is not None:
            self._report(f"{entry.name}: opened again, because {entry.broken}")
        entry.broken = None
        self.events.status(entry.name, "loaded")
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
        for entry in [*self._entries.values()]:
            if entry.trouble is not None:
                with suppress(ModelChangedError):
                    (await self.lease(entry.name)).release()

    async def close_idle(self) -> None:
        """Close models that have been idle for too long."""
        for entry in [*self._entries.values()]:
            async with entry.opening:
                if not entry.leases and self.seconds_left(entry) <= 0:
                    await self._close(entry, "sleeping")

    def seconds_left(self, entry: Entry) -> float:
        """Until a model is closed, if no request comes; a client can only shorten this time."""
        limit = min(entry.keep_alive, self._idle_seconds or math.inf)
        return limit if entry.leases else limit - (time.monotonic() - entry.used)

    async def close(self) -> None:
        """Close all models; current requests fail."""
        for entry in self._entries.values():
            async with entry.opening:
                await self._close(entry, "unloaded")

    async def _close(self, entry: Entry, status: ModelStatus) -> None:
        if entry.llm is None:
            return
        llm, entry.llm = entry.llm, None
        entry.closed = status
        try:
            await run_in_thread(llm.close)
        except ThreadLimitError:
            entry.llm = llm  # it is closed later
            raise
        self.events.status(entry.name, status)


def _discard(_: str) -> None:
    pass


def split_name(given: str) -> tuple[str | None, str]:
    """Split `[NAME=]MODEL`, as it is given on a command line; None if there is no name."""
    if "=" not in given or Path(given).exists() or store.is_remote(given):
        return None, given
    name, _, model = given.partition("=")
    if not name:
        raise ConfigError(f"{given!r} has no name before the equals sign; use NAME=MODEL")
    return name, model


def model_name(path: Path) -> str:
    """A model's name by default: the file name without its extension, or that of a repository."""
    return path.name.removesuffix(".gguf") if repo_of(path) is None else store.checkpoint_name(path)
