"""Front: the application that Serve's proxies talk to. It passes requests on to the replicas.

It reads a request's body and chooses nothing but its route; the replicas check, answer and log. If
a replica dies before its answer has begun, the request goes to another one. A stream that has begun
ends with an error in the form of its API.
"""

import asyncio
from collections.abc import AsyncIterator
from operator import itemgetter
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Receive, Scope, Send

from ingot.ray.call import Call, Route, call_of
from ingot.ray.joined import joined
from ingot.server.error_bodies import error_body
from ingot.server.errors import ApiError, ClientGoneError, ErrorInfo
from ingot.server.generation import disconnected
from ingot.server.http.event_stream import LINES, event, line
from ingot.server.http.json_response import dumps

_LOST = (RayActorError, ReplicaUnavailableError, DeploymentUnavailableError)
_TRIES = 3  # of a request whose replica dies before it answers
_ID = b"x-request-id"  # Serve gives requests and responses their ids


@serve.ingress()
class Front:
    """The ingress of the application."""

    def __init__(self, replicas: DeploymentHandle, max_body: int) -> None:
        self._app = FrontApp(replicas, max_body)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """What Serve calls for each request."""
        return self._app


class FrontApp:
    """The ASGI application that passes requests on."""

    def __init__(self, replicas: DeploymentHandle, max_body: int) -> None:
        """`max_body` bytes of a request are read at most."""
        # By gRPC, a list of tokens costs half of what it costs as an object of Ray.
        self._replicas = replicas.options(_by_reference=False)
        self._streaming = self._replicas.options(stream=True)
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the answer of a replica."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        response = _Response(scope["path"], send)
        try:
            body = await self._read(receive)
            call = call_of(scope, body)
            answering = asyncio.create_task(self._answer(call, response))
            gone = asyncio.create_task(disconnected(receive))
            try:
                await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
                if answering.done():
                    answering.result()
            finally:
                for task in (answering, gone):
                    task.cancel()
                await asyncio.gather(answering, gone, return_exceptions=True)
        except ClientGoneError:
            pass
        except BackPressureError:
            await response.fail(
                ErrorInfo(429, "all replicas are busy; try again", code="queue_full", retry=True)
            )
        except _LOST:
            await response.fail(
                ErrorInfo(
                    503,
                    "the replica that answered this request is gone; try again",
                    code="replica_lost",
                    retry=True,
                )
            )
        except ApiError as error:
            await response.fail(error.info)

    async def _read(self, receive: Receive) -> bytes:
        """The body; of one that is too large, enough for the replica to refuse it."""
        pieces, size = [], 0
        while size <= self._max_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if not message.get("more_body"):
                break
        return b"".join(pieces)

    async def _answer(self, call: Call, response: "_Response") -> None:
        if call.route is Route.EACH:
            for message in await self._ask_each(call):
                await response.send(message)
            return
        for attempt in range(1, _TRIES + 1):
            try:
                async for messages in self._messages(call):
                    for message in messages:
                        await response.send(message)
                return
            except _LOST:
                if response.has_begun or attempt == _TRIES or call.route is Route.HOME:
                    raise

    async def _messages(self, call: Call) -> AsyncIterator[list[dict[str, Any]]]:
        streamed = self._streaming.answer.remote(call)
        try:
            async for messages in streamed:
                yield messages
        finally:
            streamed.cancel()

    async def _ask_each(self, call: Call) -> list[dict[str, Any]]:
        """The answers of all replicas, as one; of those that die meanwhile, none."""
        asked = self._replicas.broadcast("name_and_answer", call)
        answers: list[tuple[str, list[dict[str, Any]]]] = []
        errors: list[BaseException] = []
        for found in await asked.results_async(return_exceptions=True):
            if isinstance(found, BaseException):
                errors.append(found)
            else:
                answers.append(found)
        for error in errors:
            if not (answers and isinstance(error, _LOST)):
                raise error
        return joined(call, sorted(answers, key=itemgetter(0)))


class _Response:
    """What a client has got so far."""

    def __init__(self, path: str, send: Send) -> None:
        self._path = path
        self._send = send
        self._content_type = ""
        self.has_begun = False

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message of the replica."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = {name.lower(): value for name, value in message["headers"]}
            self._content_type = headers.get(b"content-type", b"").decode("latin-1")
            others = [each for each in message["headers"] if each[0].lower() != _ID]
            message = {**message, "headers": others}
        await self._send(message)

    async def fail(self, info: ErrorInfo) -> None:
        """Send an error: as a response, or as the last event of a stream."""
        body = error_body(self._path, info)
        if not self.has_begun:
            content = dumps(body).encode()
            named = {"content-type": "application/json", "content-length": str(len(content))}
            headers = [
                (name.lower().encode(), value.encode())
                for name, value in (named | dict(info.headers)).items()
            ]
            await self._send(
                {"type": "http.response.start", "status": info.status, "headers": headers}
            )
            await self._send({"type": "http.response.body", "body": content})
            return
        if self._content_type.startswith("text/event-stream"):
            name = "error" if self._path.startswith("/v1/messages") else None
            last = event(body, name)
        elif self._content_type.startswith(LINES):
            last = line(body)
        else:
            raise ConnectionResetError(info.message)  # a broken answer must not look whole
        await self._send({"type": "http.response.body", "body": last})


async def _live(receive: Receive, send: Send) -> None:
    """Start and stop, which takes nothing."""
    for stage in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{stage}.complete"})
