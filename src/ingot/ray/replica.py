"""Replica: the HTTP server of `ingot serve` as a Ray actor, which answers calls of the front.

ASGI messages go out in lists: all that were ready since the last one. The first ones go out at
once; after them a stream pauses after each list (`pace.py`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from ray import serve
from starlette.types import Message

from ingot.ray.call import Call
from ingot.ray.cores import claim
from ingot.ray.models import located
from ingot.ray.pace import AT_ONCE, START, pause
from ingot.ray.router import OWNS, STARTED
from ingot.server.app import application
from ingot.server.options import ServerOptions
from ingot.server.state import Server
from ingot.server.threads import run_in_thread

Messages = list[dict[str, Any]]


class Replica:
    """A server without a socket. Serve makes one in each process."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, options: ServerOptions, sources: Mapping[str, str], pinned: int | None = None
    ) -> None:
        """Open the models; a replica that cannot fails here, and Serve tells why.

        `pinned`: to how many cores of its own it keeps; None: the system chooses.
        """
        if pinned is not None:
            self._cores = claim(pinned)
            self._cores.keep_to()
        self._server = Server(await run_in_thread(located, options, sources))
        self._app = application(self._server)
        self._name = str(serve.get_replica_context().replica_id.unique_id)
        self._streams = 0  # calls that are being answered
        self._lifespan = self._app.router.lifespan_context(self._app)
        await self._lifespan.__aenter__()

    async def answer(self, call: Call) -> AsyncIterator[Messages]:
        """The messages of the response; a caller that goes away ends the work."""
        ready: asyncio.Queue[Message | None] = asyncio.Queue()
        gone = asyncio.Event()
        unread = [{"type": "http.request", "body": call.body, "more_body": False}]

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            ready.put_nowait(message)

        async def work() -> None:
            try:
                await self._app(call.scope, receive, send)
            finally:
                ready.put_nowait(None)

        working = asyncio.create_task(work())
        self._streams += 1
        try:
            is_open, lists = True, 0
            while is_open:
                messages = [await ready.get()]
                lists += 1
                if messages[0] is not None and (lists == 1 or lists > AT_ONCE):
                    wait = START if lists == 1 else pause(self._streams)
                    await asyncio.wait((working,), timeout=wait)
                while not ready.empty():
                    messages.append(ready.get_nowait())
                is_open = messages[-1] is not None
                sent = _merged([message for message in messages if message is not None])
                if sent:
                    yield sent
            await working
        finally:
            self._streams -= 1
            gone.set()
            with suppress(Exception):
                await working

    async def name_and_answer(self, call: Call) -> tuple[str, Messages]:
        """The replica's name and the whole response, for a call that goes to each."""
        messages = [message async for part in self.answer(call) for message in part]
        return self._name, messages

    def record_replica_metadata(self) -> dict[str, float | bool]:
        """What routers know of this replica; Serve asks once, before any request."""
        return {STARTED: time.time(), OWNS: self._server.batches_folder.is_claimed}

    async def check_health(self) -> None:
        """Raise an error if an engine has failed or hangs, so that Serve starts a new replica."""
        for entry in self._server.catalog.entries.values():
            if entry.llm is not None:
                entry.llm.engine.check()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What `autoscaling.ByTokens` decides by: requests, and the tokens that they hold."""
        requests = tokens = 0
        for generation in self._server.generations:
            for request in generation.requests:
                requests += 1
                tokens += request.timings.prompt_tokens + request.timings.generated_tokens
        return {"requests": float(requests), "tokens": float(tokens)}

    async def __del__(self) -> None:
        """Close the models; Serve calls it when the requests have ended."""
        if hasattr(self, "_lifespan"):
            await self._lifespan.__aexit__(None, None, None)


def _merged(messages: list[Message]) -> Messages:
    """The messages, with one body for those that follow each other."""
    merged: Messages = []
    for message in messages:
        last = merged[-1] if merged else {}
        if last.get("type") == message["type"] == "http.response.body":
            last["body"] = last.get("body", b"") + message.get("body", b"")
            last["more_body"] = message.get("more_body", False)
        else:
            merged.append(dict(message))
    return merged
