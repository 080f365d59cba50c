"""Reads a request's body: within its size, its deadline and the server's memory, checked as JSON.

ASGI messages come in, a body goes out, or an `ApiError`. Parsing and validating a body block every
other thread of the process, the engine's too. How long they take depends on the number of values
far more than on the number of bytes. Therefore native code counts the values first, without
creating any. It does not know what a body means.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from starlette.types import Receive

from ingot._native import JsonFault, scan_json
from ingot.server.body_limits import MAX_DEPTH, MAX_NUMBER_LENGTH, MAX_VALUES
from ingot.server.errors import ApiError, ClientGoneError
from ingot.server.options import ServerOptions
from ingot.server.threads import run_in_thread

SMALL_BODY = 64 << 10  # bytes: free of the budget, and scanned faster than a thread starts

_FAULTS: Mapping[JsonFault, str] = MappingProxyType(
    {
        JsonFault.VALUES: f"the body has more than {MAX_VALUES} values; send less at once, or "
        "text instead of token ids",
        JsonFault.DEPTH: f"the body nests lists and objects more than {MAX_DEPTH} levels deep",
        JsonFault.NUMBER: "the body is not valid JSON: a number or word is longer than "
        f"{MAX_NUMBER_LENGTH} characters",
        JsonFault.NOT_FINITE: "the body is not valid JSON: a number is infinite or NaN",
        JsonFault.SURROGATE: "the body is not valid JSON: a string has an unpaired surrogate",
        JsonFault.ENCODING: "the body is not valid JSON: it has a zero byte; it must be UTF-8",
        JsonFault.DUPLICATE: "the body is not valid JSON: an object has the same name twice",
    }
)


class BodyBudget:
    """The bytes that the bodies of all current requests may hold together.

    The first `SMALL_BODY` bytes of each body do not count, so small requests always pass.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    @contextmanager
    def share(self, announced: int) -> Iterator["BodyShare"]:
        """One body's share, until its request ends. `announced` is its Content-Length."""
        share = BodyShare(self)
        if self.held + _counted(announced) > self._limit:
            raise _out_of_budget(self._limit)
        try:
            yield share
        finally:
            self.held -= share.held

    def take(self, count: int) -> None:
        """Hold more bytes, or raise the error for the client."""
        if count and self.held + count > self._limit:
            raise _out_of_budget(self._limit)
        self.held += count


class BodyShare:
    """What one body holds of a budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.held = 0

    def grow(self, size: int) -> None:
        """Count a body that has `size` bytes now."""
        more = _counted(size) - self.held
        self._budget.take(more)
        self.held += more


class BodyReader:
    """Reads the bodies of one server."""

    def __init__(self, options: ServerOptions) -> None:
        self._max_body = options.max_body
        self._limits = options.limits
        self._budget = BodyBudget(max(options.max_bodies, options.max_body))
        self._scanning = asyncio.Lock()

    @contextmanager
    def share(self, content_length: str) -> Iterator[BodyShare]:
        """A place for a body, if one of the announced length may come now."""
        announced = int(content_length) if content_length.isdecimal() else 0
        if announced > self._max_body:
            raise _too_large(self._max_body)
        with self._budget.share(announced) as share:
            yield share

    async def read(self, receive: Receive, share: BodyShare, *, is_json: bool = True) -> bytes:
        """The whole body, checked if it is JSON.

        The caller parses it at once. The next large body has to be scanned first, so the event
        loop does other work between two of them.
        """
        body = await self._receive(receive, share)
        if not is_json:
            return body
        if len(body) < SMALL_BODY:
            check_json(body)
        else:
            async with self._scanning:
                await run_in_thread(check_json, body)
        return body

    async def _receive(self, receive: Receive, share: BodyShare) -> bytes:
        limits = self._limits
        pieces: list[bytes] = []
        size = size_at_deadline = 0
        try:
            async with asyncio.timeout(limits.body_time) as deadline:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > self._max_body:
                        raise _too_large(self._max_body)
                    share.grow(size)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
                    if size - size_at_deadline >= limits.body_bytes:
                        size_at_deadline = size
                        deadline.reschedule(asyncio.get_running_loop().time() + limits.body_time)
        except TimeoutError:
            raise ApiError(
                408,
                f"the body arrives too slowly: neither its end nor {limits.body_bytes} bytes in "
                f"{limits.body_time:g} s",
            ) from None


def _counted(size: int) -> int:
    return max(size - SMALL_BODY, 0)


def check_json(text: bytes) -> None:
    """Raise an error if JSON has too many values to parse it, or has some that are not valid."""
    fault = scan_json(text, values=MAX_VALUES, depth=MAX_DEPTH, word=MAX_NUMBER_LENGTH)
    if fault in _FAULTS:
        raise ApiError(400, _FAULTS[fault])


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the request body is larger than this server's limit of {limit} bytes")


def _out_of_budget(limit: int) -> ApiError:
    return ApiError(
        503,
        f"the bodies of current requests use this server's {limit} bytes for them; try again later",
        code="body_budget_full",
        retry=True,
    )
