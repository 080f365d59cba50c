"""Writing: the texts of one HTTP request on their way from the engine to the client.

Comes in: a lease on a model and the engine's requests. Goes out: pieces as they come, or the
whole. Whatever happens to the client, the texts end with it and the lease is given back. It does
not know what an endpoint's answers look like.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from starlette.types import Receive

from ingot.api import LLM
from ingot.engine import Completion, Request
from ingot.errors import RequestCancelledError
from ingot.sampling import Grammar
from ingot.server.call import Call
from ingot.server.catalog import Catalog, Lease
from ingot.server.errors import ApiError, ClientGoneError
from ingot.server.several import Texts
from ingot.server.slot_table import SlotTable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of one of the texts; at its end the whole, and what was still held back."""

    index: int
    text: str
    done: Completion | None = None


class Writings:
    """All texts that a server is writing."""

    def __init__(self) -> None:
        self._open: dict[Writing, None] = {}  # in the order they came
        self._slots: dict[str, SlotTable] = {}

    def __iter__(self) -> "Iterator[Writing]":
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    async def begin(
        self,
        catalog: Catalog,
        model: str | None,
        call: Call,
        ask: Callable[[LLM], Texts],
        receive: Receive,
        *,
        slot: int | None = None,
    ) -> "Writing":
        """Have texts written: `ask` says which, in a thread.

        Their grammar is compiled first, unless the client goes before; no thread that others
        need waits for that. The first text gets the slot that is wanted, if it is free.
        """
        lease = await catalog.lease(model)
        call.model = lease.name
        try:
            texts = await asyncio.to_thread(ask, lease.llm)
            compiled = await _compiled(lease.llm, texts.params.grammar, receive)
            requests = await asyncio.to_thread(texts.submit, lease.llm)
            del compiled  # the requests have it
        except BaseException:
            lease.release()
            raise
        slots = self.slots_of(lease)
        slots.enter(requests, slot)
        writing = Writing(lease, requests, call, slots, self._open.pop)
        self._open[writing] = None
        return writing

    def slots_of(self, lease: Lease) -> SlotTable:
        """The slots of a model."""
        if lease.name not in self._slots:
            self._slots[lease.name] = SlotTable(lease.llm.engine.options.max_running)
        return self._slots[lease.name]


class Writing:
    """The texts of one call: use it as a context, in which they are read."""

    def __init__(
        self,
        lease: Lease,
        requests: Sequence[Request],
        call: Call,
        slots: SlotTable,
        forget: Callable[["Writing"], object],
    ) -> None:
        self.llm = lease.llm
        self.model = lease.name
        self.requests = requests
        self.call = call
        self.slots = slots
        self.stopped = False  # by the server, which is about to stop
        self._lease = lease
        self._forget = forget

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what has not ended, and give the model back."""
        self.cancel()
        self.call.count(self.requests)
        self.slots.leave(self.requests)
        self._lease.release()
        self._forget(self)

    def cancel(self) -> None:
        """End the texts; what is written stays."""
        for request in self.requests:
            request.cancel()

    def stop(self) -> None:
        """End them because the server stops."""
        self.stopped = True
        self.cancel()

    async def results(self) -> list[Completion]:
        """All texts, whole."""
        try:
            return [await request for request in self.requests]
        except RequestCancelledError:
            raise self._ended_early() from None

    async def pieces(self) -> AsyncIterator[Piece]:
        """The texts as they come; each one's last piece has the whole."""
        if len(self.requests) == 1:
            async for piece in self._pieces_of(0):
                yield piece
            return
        queue: asyncio.Queue[Piece | BaseException] = asyncio.Queue()

        async def read(index: int) -> None:
            try:
                async for piece in self._pieces_of(index):
                    queue.put_nowait(piece)
            except BaseException as error:  # it is for whoever reads the queue
                queue.put_nowait(error)

        readers = [asyncio.create_task(read(index)) for index in range(len(self.requests))]
        try:
            left = len(readers)
            while left:
                read_one = await queue.get()
                if isinstance(read_one, BaseException):
                    raise read_one
                left -= read_one.done is not None
                yield read_one
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _pieces_of(self, index: int) -> AsyncIterator[Piece]:
        request = self.requests[index]
        async for text in request:
            yield Piece(index, text)
        try:
            done = await request
        except RequestCancelledError:
            raise self._ended_early() from None
        yield Piece(index, "", done)

    def _ended_early(self) -> Exception:
        if self.stopped:
            return ApiError(
                503, "the server is stopping; ask again", code="server_stopping", retry=True
            )
        return ClientGoneError("the client has gone")


async def _compiled(llm: LLM, grammar: Grammar | None, receive: Receive) -> object:
    """A grammar that is ready, for as long as somebody has it."""
    if grammar is None:
        return None
    compiling = llm.engine.compile_grammar(grammar)
    if compiling.done():
        return compiling.result()
    return await while_connected(receive, asyncio.wrap_future(compiling))


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Wait for something; a client that goes ends it with `ClientGoneError`."""
    job = asyncio.ensure_future(work)
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ClientGoneError("the client has gone")
        return job.result()
    finally:
        for task in (job, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def disconnected(receive: Receive) -> None:
    """Wait until the client goes."""
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            return
