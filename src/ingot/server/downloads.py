"""Downloads: models that clients have the server download into the store, one after the other.

A name comes in; events go out to whoever watches the models, and in the end the catalog has the
model. Only the default model and names of the hub and of Ollama's registry are allowed: a URL could
lead to anything that this machine can reach. A download that nobody wants any more is cancelled;
what has arrived stays, and the next one continues there. All methods belong to one event loop. It
does not know HTTP.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ingot import store
from ingot.errors import QueueFullError, StoreError
from ingot.server.catalog import Catalog
from ingot.store.names import OLLAMA_HOST, DefaultName, FileName, HubName, OllamaName, parse_name
from ingot.store.progress import Progress

EVENT = "download"  # the name of the events
_MOST = 16  # downloads that wait or run
_PAUSE = 0.2  # seconds between two events about the bytes of a file
_HUB_HOSTS = ("hf.co/", "huggingface.co/")  # as Ollama's clients write names of the hub

DownloadStatus = Literal["waiting", "downloading", "done", "failed", "cancelled"]
ENDED: tuple[DownloadStatus, ...] = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class DownloadState:
    """How far a download is: `done` of `total` bytes of a stage, of which 0 are not known."""

    status: DownloadStatus
    stage: str = ""
    done: int = 0
    total: int = 0
    error: str | None = None
    model: str | None = None  # the name of the model in requests, once it is here


@dataclass(slots=True, eq=False)
class Download:
    """A download under way."""

    name: str
    state: DownloadState = field(default_factory=lambda: DownloadState("waiting"))
    wanted: int = 0  # by so many clients
    is_cancelled: bool = False
    task: asyncio.Task[str] | None = None


class _CancelledDownload(Exception):  # noqa: N818 (it ends a thread, and is no error)
    """Nobody wants the download any more."""


class Downloads:
    """The downloads of a server that have not ended."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._open: dict[str, Download] = {}
        self._turn = asyncio.Lock()

    def __iter__(self) -> Iterator[Download]:
        return iter([*self._open.values()])

    def begin(self, given: str) -> Download:
        """Download a model, or join the download of it, for one client more."""
        name = downloadable(given)
        download = self._open.get(name)
        if download is None:
            if len(self._open) >= _MOST:
                raise QueueFullError(f"{_MOST} downloads are waiting or running; try again later")
            download = self._open[name] = Download(name)
            self._tell(download, download.state)
            download.task = asyncio.create_task(self._run(download, given))
            download.task.add_done_callback(partial(self._end, download))
        download.wanted += 1
        return download

    def leave(self, download: Download) -> None:
        """One client less wants it; without any, it is cancelled."""
        download.wanted -= 1
        if download.wanted <= 0:
            self._cancel(download)

    def cancel(self, given: str) -> bool:
        """Cancel the download of a name, whoever wants it; False if there is none."""
        download = self._open.get(downloadable(given))
        if download is not None:
            self._cancel(download)
        return download is not None

    async def close(self) -> None:
        """Cancel all downloads."""
        tasks = [download.task for download in self if download.task is not None]
        for download in self:
            self._cancel(download)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self, download: Download) -> None:
        download.is_cancelled = True
        if download.task is not None:
            download.task.cancel()

    async def _run(self, download: Download, given: str) -> str:
        """The name in requests of a model, after it was downloaded."""
        async with self._turn:
            path = await self._pulled(download)
        if (found := self._serve(path, given, download.name)) is None:
            raise StoreError(
                f"{download.name} was downloaded to {path}, but it is no model that Ingot runs; "
                "`ingot inspect` says more"
            )
        return found

    def _end(self, download: Download, task: "asyncio.Task[str]") -> None:
        """A task has ended, perhaps before it began."""
        del self._open[download.name]
        if task.cancelled():
            self._tell(download, DownloadState("cancelled"))
        elif error := task.exception():
            why = str(error) or type(error).__name__
            self._tell(download, DownloadState("failed", error=why))
        else:
            self._tell(download, DownloadState("done", model=task.result()))

    async def _pulled(self, download: Download) -> Path:
        """The file of a model, downloaded in a thread that does not keep the process alive."""
        loop = asyncio.get_running_loop()
        told = -_PAUSE  # when the last event was published

        def report(stage: str, done: int, total: int) -> None:
            nonlocal told
            if download.is_cancelled:
                raise _CancelledDownload
            now = time.monotonic()
            if stage == download.state.stage and done < total and now < told + _PAUSE:
                return
            told = now
            state = DownloadState("downloading", stage, done, total)
            loop.call_soon_threadsafe(self._tell, download, state)

        self._tell(download, replace(download.state, status="downloading"))
        result: asyncio.Future[Path] = loop.create_future()
        work = threading.Thread(
            target=_pull, args=(download.name, report, loop, result), daemon=True, name="download"
        )
        work.start()
        return await result

    def _serve(self, path: Path, *names: str) -> str | None:
        """Have the catalog find a model that is new; its name there, if it does."""
        self._catalog.discover(at_once=True)
        entries = self._catalog.entries.values()
        found = next((entry.name for entry in entries if entry.model.path == path), None)
        if found is not None:
            self._catalog.add_aliases(found, names)
        return found

    def _tell(self, download: Download, state: DownloadState) -> None:
        if download.state.status in ENDED:
            return  # a report of its thread that came late
        download.state = state
        self._catalog.events.publish(download.name, EVENT, asdict(state))


def downloadable(given: str) -> str:
    """The name of a model for the store; `StoreError` if a client may not have it downloaded."""
    for host in _HUB_HOSTS:
        if given.startswith(host):
            given = f"hf:{given.removeprefix(host)}"
    name = parse_name(given)
    if isinstance(name, FileName):  # Ollama's clients write no prefix
        name = parse_name(f"ollama:{given}")
    if isinstance(name, DefaultName):
        return store.DEFAULT
    if isinstance(name, HubName) or (isinstance(name, OllamaName) and name.host == OLLAMA_HOST):
        return str(name)
    raise StoreError(
        f"{given!r:.80} cannot be downloaded for a client: name a model of the hub "
        "(hf:OWNER/REPO:QUANT) or of Ollama's registry (ollama:NAME)"
    )


def _pull(
    name: str,
    report: Progress,
    loop: asyncio.AbstractEventLoop,
    result: asyncio.Future[Path],
) -> None:
    """Pull a model; its path, or an error, becomes the result."""

    def finish(set_result: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has stopped
            loop.call_soon_threadsafe(lambda: None if result.done() else set_result())

    try:
        path = store.pull(name, report)
    except _CancelledDownload:
        return
    except Exception as error:  # for the task that waits
        failure = error
        finish(lambda: result.set_exception(failure))
    else:
        finish(lambda: result.set_result(path))
