"""Generation: the completions of one HTTP request on their way from the engine to the client.

A lease on a model and prompts come in; pieces of text go out as they are generated, or whole
completions. Whatever happens to the client, the engine's requests end with it and the lease is
returned. It does not know what an endpoint's responses look like.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.types import Receive

from ingot.api import LLM
from ingot.engine import Completion, Request
from ingot.engine.options import RequestSpeculation
from ingot.engine.request import Progress
from ingot.errors import RequestCancelledError
from ingot.sampling import Grammar, SamplingParams
from ingot.sampling.checks import LARGEST_SEED
from ingot.server.catalog import Catalog
from ingot.server.errors import ClientGoneError, stopping_error
from ingot.server.http.access_log import AccessRecord
from ingot.server.model_entry import Lease
from ingot.server.request_adapters import AdapterScale, adapter_choice
from ingot.server.slot_table import SlotTable
from ingot.server.threads import run_in_thread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guidance:
    """Classifier-free guidance away from a prompt."""

    prompt: Sequence[int]
    scale: float


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts, each to be continued `count` times with the same parameters."""

    prompts: Sequence[NDArray[np.int32]]
    params: SamplingParams
    count: int = 1
    reuse: bool = True
    include_stop: bool = False  # whether texts include the stop sequence that ended them
    guidance: Guidance | None = None
    keep: int = 0  # first tokens that stay when the context is shifted; -1: the prompt
    heal: bool = False  # whether texts may continue from inside the prompt's last token
    lora: Sequence[AdapterScale] | None = None  # None: the adapter that the model's name names
    priority: int = 0  # lower values are admitted first
    speculation: RequestSpeculation = "auto"
    warnings: tuple[str, ...] = ()  # for the client

    def submit(
        self, llm: LLM, *, shift: bool = False, named_adapter: str | None = None
    ) -> list[Request]:
        """Submit all completions, or none. With a seed, each one of a prompt gets the next.

        With `shift`, a text that fills the context continues without its middle.
        """
        adapter = adapter_choice(llm, self.lora, named_adapter)
        requests: list[Request] = []
        try:
            for prompt in self.prompts:
                for number in range(self.count):
                    requests.append(
                        llm.stream(
                            prompt,
                            self._params_of(number),
                            context_overflow="shift" if shift else "stop",
                            keep=len(prompt) if self.keep < 0 else self.keep,
                            reuse=self.reuse,
                            heal=self.heal,
                            negative_prompt=self.guidance.prompt if self.guidance else None,
                            cfg_scale=self.guidance.scale if self.guidance else 1.0,
                            adapter=adapter,
                            priority=self.priority,
                            speculation=self.speculation,
                        )
                    )
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return requests

    def _params_of(self, number: int) -> SamplingParams:
        """The parameters of a completion of a prompt, counted from 0."""
        if self.params.seed is None or number == 0:
            return self.params
        return replace(self.params, seed=(self.params.seed + number) % (LARGEST_SEED + 1))


@dataclass(slots=True)  # not frozen: one is made for every token
class Piece:
    """Some text of one completion, or progress of its prompt. The last carries the whole."""

    index: int
    text: str
    done: Completion | None = None
    progress: Progress | None = None


class Generations:
    """All generations that a server is running."""

    def __init__(self) -> None:
        self._open: dict[Generation, None] = {}  # in the order they began
        self._slots: dict[str, SlotTable] = {}

    def __iter__(self) -> "Iterator[Generation]":
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    async def begin(
        self,
        catalog: Catalog,
        model: str | None,
        record: AccessRecord,
        prepare: Callable[[LLM], PromptSet],
        receive: Receive,
        *,
        slot: int | None = None,
    ) -> "Generation":
        """Submit the prompts that `prepare`, called in a thread, makes for the model.

        A grammar is compiled first, unless the client disconnects before; that blocks no thread
        that others need. The first completion gets the wanted slot, if it is free.
        """
        lease = await catalog.lease(model)
        record.model = lease.name

        def submit(prompts: PromptSet) -> list[Request]:
            shift = lease.model.context_shift and prompts.guidance is None
            return prompts.submit(lease.llm, shift=shift, named_adapter=lease.adapter)

        def begin() -> tuple[PromptSet, list[Request] | None]:
            prompts = prepare(lease.llm)
            return prompts, submit(prompts) if prompts.params.grammar is None else None

        try:
            prompts, requests = await run_in_thread(begin)
            if requests is None:
                compiled = await _compiled(lease.llm, prompts.params.grammar, receive)
                requests = await run_in_thread(submit, prompts)
                del compiled  # the requests hold it now
        except BaseException:
            lease.release()
            raise
        record.warnings += [each for each in prompts.warnings if each not in record.warnings]
        slots = self.slots_of(lease.name, lease.llm)
        slots.enter(requests, slot)
        generation = Generation(
            lease, requests, record, slots, self._open.pop, include_stop=prompts.include_stop
        )
        self._open[generation] = None
        return generation

    def slots_of(self, name: str, llm: LLM) -> SlotTable:
        """The slots of a model that is open."""
        if name not in self._slots:
            self._slots[name] = SlotTable(llm.engine.max_running)
        return self._slots[name]


class Generation:
    """The completions of one HTTP request; a context, at whose end they end too."""

    def __init__(
        self,
        lease: Lease,
        requests: Sequence[Request],
        record: AccessRecord,
        slots: SlotTable,
        forget: Callable[["Generation"], object],
        *,
        include_stop: bool = False,
    ) -> None:
        self.llm = lease.llm
        self.model = lease.adapter or lease.name
        self.requests = requests
        self.record = record
        self.slots = slots
        self.began = time.perf_counter()
        self.stopped = False  # by the server, which is about to stop
        self.is_closed = False
        self._lease = lease
        self._forget = forget
        self._include_stop = include_stop

    @property
    def seconds(self) -> float:
        """Seconds since the requests were submitted."""
        return time.perf_counter() - self.began

    @property
    def warnings(self) -> list[str] | None:
        """What the client should know about its request; None if there is nothing."""
        return self.record.warnings or None

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
        """Cancel what is still running, and return the model."""
        self.is_closed = True
        self.cancel()
        self.record.count(self.requests)
        self.slots.leave(self.requests)
        self._lease.release()
        self._forget(self)

    def cancel(self) -> None:
        """Cancel the completions; their text so far stays."""
        for request in self.requests:
            request.cancel()

    def stop(self) -> None:
        """Cancel them because the server stops."""
        self.stopped = True
        self.cancel()

    async def results(self) -> list[Completion]:
        """All completions, once they are done."""
        try:
            return [self._ended(await request) for request in self.requests]
        except RequestCancelledError:
            raise self._cancellation() from None

    async def pieces(self, *, progress: bool = False) -> AsyncIterator[Piece]:
        """Text as it is generated; the last piece of each completion carries the whole.

        With `progress`, some pieces before the text say how much of the prompt is read.
        """
        if len(self.requests) == 1 and not progress:
            async for piece in self._pieces_of(0):
                yield piece
            return
        queue: asyncio.Queue[Piece | BaseException] = asyncio.Queue()

        async def read(index: int) -> None:
            def report(done: int, total: int) -> None:
                queue.put_nowait(Piece(index, "", progress=Progress(done, total)))

            if progress:
                self.requests[index].progress = report
            try:
                async for piece in self._pieces_of(index):
                    queue.put_nowait(piece)
            except BaseException as error:  # raised again by the reader of the queue
                queue.put_nowait(error)

        readers = [asyncio.create_task(read(index)) for index in range(len(self.requests))]
        try:
            left = len(readers)
            while left:
                received = await queue.get()
                if isinstance(received, BaseException):
                    raise received
                left -= received.done is not None
                yield received
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _pieces_of(self, index: int) -> AsyncIterator[Piece]:
        request = self.requests[index]
        async for text in request:
            # A slow client gets several tokens in one piece.
            yield Piece(index, text + request.take_ready())
        try:
            done = await request
        except RequestCancelledError:
            raise self._cancellation() from None
        ended = self._ended(done)
        yield Piece(index, ended.text[len(done.text) :], ended)

    def _ended(self, done: Completion) -> Completion:
        """A completion, with the stop sequence that ended it if the client wants that."""
        if not self._include_stop or not isinstance(done.stopped_by, str):
            return done
        return replace(done, text=done.text + done.stopped_by)

    def _cancellation(self) -> Exception:
        return stopping_error() if self.stopped else ClientGoneError()


async def _compiled(llm: LLM, grammar: Grammar | None, receive: Receive) -> object:
    """A compiled grammar; the engine's cache keeps it while somebody refers to it."""
    if grammar is None:
        return None
    compiling = llm.engine.compile_grammar(grammar)
    if compiling.done():
        return compiling.result()
    return await while_connected(receive, asyncio.wrap_future(compiling))


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Await something; a client that disconnects ends it with `ClientGoneError`."""
    job = asyncio.ensure_future(work)
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ClientGoneError
        return job.result()
    finally:
        for task in (job, gone):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
