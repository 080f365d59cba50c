"""Workers on Ray that answer the requests of a batch, as a server in this process would.

Ray starts a worker again that was killed, on another machine if necessary, and asks it again what
it had not answered. So every request has one answer.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import ray
from ray.exceptions import RayTaskError

from ingot.errors import ConfigError, IngotError
from ingot.ray.cores import claim
from ingot.ray.models import located
from ingot.ray.scale import FOR_SERVERS, Scale, fitted
from ingot.server.batches.offline import Asking, asking
from ingot.server.batches.requests import Answer, BatchRequest
from ingot.server.batches.run import Ask
from ingot.server.options import ServerOptions
from ingot.server.threads import run_in_thread

_CALLS = 1000  # of one worker at once; far fewer are made
# Settings of Ray's processes, for a cluster that is started here. The proxy passes tokens on by
# gRPC, and a token does not change threads on its way: this halves what Serve costs. Replicas have
# the priority of other programs; by default Ray gives them less, and every program on the machine,
# clients and Ray's own daemons among them, interrupts the threads of a step.
FAST = {
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_worker_niceness": "0",
}


class Worker:
    """A server in a process of Ray. It opens the models when it is first asked."""

    def __init__(
        self, options: ServerOptions, sources: Mapping[str, str], pinned: int | None = None
    ) -> None:
        """`pinned`: to how many cores of its own it keeps; None: the system chooses."""
        self._options = options
        self._sources = sources
        self._pinned = pinned
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()
        self._asked: tuple[Ask, int] | None = None

    async def at_once(self) -> int:
        """How many requests keep it busy."""
        return (await self._server())[1]

    async def ask(self, request: BatchRequest) -> Answer | None:
        """The answer to a request."""
        return await (await self._server())[0](request)

    async def _server(self) -> tuple[Ask, int]:
        async with self._opening:
            if self._asked is None:
                if self._pinned is not None:
                    self._cores = claim(self._pinned)
                    self._cores.keep_to()
                options = await run_in_thread(located, self._options, self._sources)
                self._asked = await self._open.enter_async_context(asking(options))
            return self._asked


def asking_workers(
    options: ServerOptions, scale: Scale, sources: Mapping[str, str], address: str | None
) -> Asking:
    """What asks the workers of a cluster, and how many requests keep them busy."""
    scale.refuse(("max_replicas", *FOR_SERVERS), "it has as many workers as `replicas` says")
    return _asking(fitted(options, scale), scale, sources, address)


@asynccontextmanager
async def _asking(
    options: ServerOptions, scale: Scale, sources: Mapping[str, str], address: str | None
) -> AsyncIterator[tuple[Ask, int]]:
    started = not ray.is_initialized()
    if started:
        connect(address)
    kind = ray.remote(
        num_cpus=scale.cpus,
        num_gpus=scale.gpus,
        max_concurrency=_CALLS,
        max_restarts=-1,
        max_task_retries=-1,
    )(Worker)
    workers: list[Any] = [
        kind.remote(options, sources, scale.pinned) for _ in range(scale.replicas)
    ]
    running = dict.fromkeys(range(len(workers)), 0)

    async def ask(request: BatchRequest) -> Answer | None:
        number = min(running, key=running.__getitem__)
        running[number] += 1
        try:
            answer: Answer | None = await workers[number].ask.remote(request)
        except RayTaskError as error:
            raise _own(error) from None
        finally:
            running[number] -= 1
        return answer

    try:
        try:
            counts = await asyncio.gather(*(each.at_once.remote() for each in workers))
        except RayTaskError as error:
            raise _own(error) from None
        yield ask, sum(counts)
    finally:
        for worker in workers:
            ray.kill(worker)
        if started:
            ray.shutdown()


def connect(address: str | None) -> str | None:
    """Connect to a cluster; None: that of RAY_ADDRESS, or of this machine, or a new one.

    Returns the URL of Ray's dashboard, if it runs.
    """
    for name, value in FAST.items():
        os.environ.setdefault(name, value)
    try:
        found = ray.init(address, logging_level="warning")
    except (ConnectionError, ValueError) as error:
        raise ConfigError(f"no Ray cluster answers at {address}: {error}") from None
    return f"http://{found.dashboard_url}" if found.dashboard_url else None


def _own(error: RayTaskError) -> Exception:
    """What a worker raised, if it is an error of ours; or else what Ray says about it."""
    return error.cause if isinstance(error.cause, IngotError) else error
