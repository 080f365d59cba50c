"""Malformed bodies: whatever arrives, the server says what is wrong and continues.

The many are handed to the application directly, a few at a time, in the event loop of a server that
a bystander reads from: so they compete with its stream for the loop and for the GIL, and 100,000
take minutes. The engine they use is another one, because texts are short there. Fewer go over real
sockets (below), and the largest one by one (test_bombs.py).
"""

import asyncio
import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx
import pytest
from broken_bodies import BrokenBody, broken_bodies
from bystander import LONGEST_LAG, bystanding
from fastapi import FastAPI
from serving import PATIENCE, serving

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.app import application
from ingot.server.state import Server
from tiny_llama import write_tiny_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = ("pre", "suf", "mid")
    keys = {f"tokenizer.ggml.fim_{name}_token_id": id for id, name in enumerate(names)}
    longer = {"llama.context_length": 2048}
    return write_tiny_llama(tmp_path_factory.mktemp("fuzz") / "tiny.gguf", keys=keys | longer)


def made_server(tiny: Path, folder: Path) -> Server:
    model = ServedModel(name="tiny", path=tiny, engine=EngineOptions(threads=1))
    return Server(ServerOptions(models=(model,), max_tokens=8, slots_folder=folder))


def post_paths(app: FastAPI) -> list[str]:
    described = [path for path, methods in app.openapi()["paths"].items() if "post" in methods]
    return sorted([*described, "/completions", "/embeddings", "/v1/rerank"])


async def call(app: FastAPI, request: BrokenBody) -> tuple[int, bytes]:
    """Hand a request to the application, as a server would: the status and the body."""
    path, _, query = request.path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path.replace("%00", "\x00"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (name.encode(), value.encode("latin-1"))
            for name, value in {"host": "localhost", **request.headers}.items()
        ],
        "client": ("fuzz", 1),
        "server": ("tiny", 80),
    }
    half = len(request.body) // 2
    coming = [
        {"type": "http.request", "body": request.body[:half], "more_body": True},
        {"type": "http.request", "body": request.body[half:], "more_body": request.ends_early},
    ]
    sent: list[Any] = []
    told = asyncio.Event()

    async def receive() -> Any:
        if coming:
            return coming.pop(0)
        if not request.ends_early:
            await told.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            told.set()

    await app(scope, receive, send)
    if not sent:
        return 0, b""  # nobody was there to hear it
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def no_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def check(request: BrokenBody, status: int, body: bytes) -> None:
    assert status < 500, f"{request!r}: {status} {body[:500]!r}"
    if status == 0:
        assert request.ends_early, request
        return
    if body.startswith((b"data: ", b"event: ")):
        return
    lines = body.splitlines() if request.path.startswith("/api/") else [body]
    answer, *_ = [json.loads(line, parse_constant=no_json) for line in lines]
    if status >= 400:
        error = answer["error"]
        message = error if isinstance(error, str) else error["message"]
        assert message, request
        assert not {"Traceback", "pydantic"} & set(message.split()), request


AT_ONCE = 4


async def send_all(app: FastAPI, server: Server, requests: Iterator[BrokenBody]) -> dict[int, int]:
    statuses: dict[int, int] = {}

    async def send_some() -> None:
        for request in requests:
            status, body = await call(app, request)
            check(request, status, body)
            statuses[status] = statuses.get(status, 0) + 1

    async with asyncio.TaskGroup() as clients:
        for _ in range(AT_ONCE):
            clients.create_task(send_some())
    whole = b'{"prompt":"a","n_predict":2}'
    last = BrokenBody("/completion", whole, {"content-type": "application/json"})
    status, body = await call(app, last)
    assert (status, json.loads(body)["stop"]) == (200, True)
    assert not list(server.generations)
    await server.close()
    return statuses


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 500), pytest.param(2, 100_000, marks=pytest.mark.oracle)]
)
def test_no_body_is_answered_with_500_or_stops_a_stream(
    tiny: Path, tmp_path: Path, seed: int, count: int
) -> None:
    server = made_server(tiny, tmp_path)
    app = application(server)
    requests = broken_bodies(post_paths(app), seed, count)
    with bystanding(tmp_path) as bystander:
        work = send_all(app, server, requests)
        statuses = asyncio.run_coroutine_threadsafe(work, bystander.loop).result()
        bystander.read_on(3)
    assert bystander.longest_lag <= LONGEST_LAG
    assert sum(statuses.values()) == count
    assert statuses[400] > count / 4  # most are wrong indeed
    assert statuses[200] > count / 50  # and some are what they were


# What is wrong with more than the body.
_RAW = (
    b"POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
    b"POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n{}",
    b"POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
    b"POST /completion HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    b"POST /completion HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}",
    b"POST /completion HTTP/1.1\r\n\r\n",
    b"POST /completion HTTP/9.9\r\nhost: x\r\n\r\n",
    b"NONSENSE\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: x\r\nx-request-id: " + b"a" * 100_000 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 1000,
    b"",
)


def exchange(address: tuple[str, int], content: bytes, *, is_all: bool) -> bytes:
    """Send bytes and read what comes back; where they are not all, say that no more come."""
    answer = b""
    with (
        socket.create_connection(address, timeout=PATIENCE) as connection,
        suppress(ConnectionError),  # it would not even read all of it
    ):
        connection.sendall(content)
        if not is_all:
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def over_sockets(address: tuple[str, int], requests: Iterable[BrokenBody]) -> None:
    for request in requests:
        headers = {"host": "x", "connection": "close", "content-length": str(len(request.body))}
        if request.ends_early:
            headers["content-length"] = str(2 * len(request.body) + 1)
        lines = [f"{name}: {value}" for name, value in (headers | dict(request.headers)).items()]
        head = "\r\n".join([f"POST {request.path} HTTP/1.1", *lines, "", ""])
        content = head.encode("latin-1") + request.body
        answer = exchange(address, content, is_all=not request.ends_early)
        status = int(answer.split(b" ", 2)[1]) if answer else 0
        assert status < 500, f"{request!r}: {answer[:500]!r}"
        assert status or request.ends_early, request


@pytest.mark.parametrize(
    ("seed", "count"), [(3, 60), pytest.param(4, 1000, marks=pytest.mark.oracle)]
)
def test_no_connection_stops_the_server(tiny: Path, tmp_path: Path, seed: int, count: int) -> None:
    paths = post_paths(application(made_server(tiny, tmp_path)))
    with serving(tiny, "--max-tokens", 8, "--slot-save-path", tmp_path) as served:
        parts = urlsplit(served.url)
        assert parts.hostname is not None
        assert parts.port is not None
        address = (parts.hostname, parts.port)
        for content in _RAW:
            answer = exchange(address, content, is_all=False)
            assert not answer.startswith(b"HTTP/1.1 5"), content[:100]
        over_sockets(address, broken_bodies(paths, seed, count))
        body = {"prompt": "a", "n_predict": 2}
        assert httpx.post(f"{served.url}/completion", json=body, timeout=PATIENCE).json()["stop"]
        assert not [line for line in served.log if "Traceback" in line]
