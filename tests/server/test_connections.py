"""Connections of malicious clients: what they hold is bounded, and so is their time."""

import asyncio
import resource
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from bystander import LONGEST_LAG, bystanding, running
from certificates import write_certificate
from serving import PATIENCE

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.http.connection_limits import ConnectionLimits
from ingot.server.http.listener import SPARE
from tiny_llama import write_tiny_llama

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ATTEMPTS = 200  # at what the server may still be about to do
AT_ONCE = 0.2  # seconds, for deadlines that are to pass
SOON = 1.0  # seconds, for those that something has to come before


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("connections") / "tiny.gguf")


@contextmanager
def serving_tiny(path: Path, **options: Any) -> Iterator[str]:
    model = ServedModel(name="tiny", path=path, engine=EngineOptions(threads=1))
    asked = ServerOptions(models=(model,), port=0, shutdown_grace=0, **options)
    with running(asked) as (url, _, _):
        yield url


def connect(url: str, *, receive_buffer: int | None = None) -> socket.socket:
    made = socket.socket()
    if receive_buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.settimeout(PATIENCE)
    made.connect((urlsplit(url).hostname, urlsplit(url).port))
    return made


def send(connection: socket.socket, data: bytes, times: int = 1) -> None:
    """Send, as far as the server takes it."""
    try:
        for _ in range(times):
            connection.sendall(data)
    except ConnectionError:
        pass


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes; it hangs, and fails, if the server does not."""
    taken = bytearray()
    try:
        while piece := connection.recv(1 << 16):
            taken += piece
    except ConnectionResetError:
        pass
    connection.close()
    return bytes(taken)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def peak_memory() -> int:
    """The most bytes that this process, which is the server's too, has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def test_headers_have_a_limit_and_bystanders_do_not_notice(tmp_path: Path) -> None:
    line = b"x-filler: " + b"f" * (1 << 20) + b"\r\n"
    with bystanding(tmp_path) as bystander:
        before = peak_memory()
        with connect(bystander.url) as connection:
            connection.sendall(GET)
            send(connection, line, times=30)
            assert status(rest_of(connection)) == 431
        bystander.read_on()
    assert peak_memory() - before < 16 << 20
    assert bystander.longest_lag <= LONGEST_LAG


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(GET + b"x: y\r\n" * 129 + b"\r\n", id="many headers"),
        pytest.param(b"GET /" + b"u" * 70_000 + b" HTTP/1.1\r\n\r\n", id="a long address"),
        pytest.param(GET + b"x: " + b"y" * 70_000 + b"\r\n\r\n", id="a long header"),
        pytest.param(b"\r\n" * 40_000, id="blank lines"),
        pytest.param(
            POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: " + b"y" * 140_000,
            id="a long trailer",
        ),
    ],
)
def test_what_is_read_before_a_request_is_complete_has_a_limit(tiny: Path, head: bytes) -> None:
    with serving_tiny(tiny) as url, connect(url) as connection:
        send(connection, head)
        assert status(rest_of(connection)) == 431
        assert httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200


def test_headers_up_to_the_limit_are_read(tiny: Path) -> None:
    with serving_tiny(tiny) as url:
        headers = {f"x-{number}": "v" * 500 for number in range(120)}
        assert httpx.get(f"{url}/health", headers=headers, timeout=PATIENCE).status_code == 200


def test_trailers_are_no_headers(tiny: Path) -> None:
    body = b"2\r\n{}\r\n0\r\nAuthorization: Bearer sesame\r\nConnection: close\r\n\r\n"
    with serving_tiny(tiny, api_keys=("sesame",)) as url, connect(url) as connection:
        connection.sendall(POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        assert status(rest_of(connection)) == 401


def test_unfinished_headers_do_not_stay(tmp_path: Path) -> None:
    limits = ConnectionLimits(head_time=AT_ONCE)
    with bystanding(tmp_path, limits=limits) as bystander, ExitStack() as opened:
        held = [opened.enter_context(connect(bystander.url)) for _ in range(600)]
        for connection in held[300:]:  # those whose time is not over yet
            send(connection, GET)
        answers = {rest_of(connection)[:12] for connection in held}
        assert answers == {b"", b"HTTP/1.1 408"}
        bystander.read_on()
    assert bystander.longest_lag <= LONGEST_LAG


def test_who_sends_nothing_gives_way_to_who_asks(tiny: Path) -> None:
    limits = ConnectionLimits(head_time=PATIENCE)
    with serving_tiny(tiny, max_connections=8, limits=limits) as url, ExitStack() as opened:
        for number in range(60):
            held = opened.enter_context(connect(url))
            send(held, GET if number % 2 else b"")
        for _ in range(20):
            assert httpx.get(f"{url}/v1/models", timeout=PATIENCE).status_code == 200


def test_the_server_holds_no_more_connections_than_it_may(tiny: Path) -> None:
    most = 8
    with serving_tiny(tiny, max_connections=most) as url, ExitStack() as opened:
        held = [opened.enter_context(connect(url)) for _ in range(most + SPARE + 40)]
        assert (
            httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200
        )  # so all of them were accepted
        poll = select.poll()
        for connection in held:
            poll.register(connection, select.POLLRDHUP)
        closed = {number for number, _ in poll.poll(0)}
        assert len(held) - len(closed) <= most


def test_a_server_full_of_requests_says_so_and_answers_its_supervisor(tmp_path: Path) -> None:
    unfinished = POST + b"Content-Length: 100\r\n\r\n{"
    with bystanding(tmp_path, max_connections=2) as bystander:
        url = bystander.url
        with connect(url) as busy:
            busy.sendall(unfinished + b" " * 10)
            with httpx.Client(timeout=PATIENCE) as client:
                for _ in range(ATTEMPTS):  # until the other request is being read
                    refused = client.get(f"{url}/v1/models")
                    if refused.status_code != 200:
                        break
                assert refused.status_code == 503
                assert refused.headers["retry-after"] == "1"
                assert refused.json()["error"]["code"] == "full"
            for path in ("/health", "/ready", "/metrics"):
                assert httpx.get(url + path, timeout=PATIENCE).status_code == 200
        bystander.read_on()
    assert bystander.longest_lag <= LONGEST_LAG


def test_connections_beyond_all_places_are_turned_away_unread(tiny: Path) -> None:
    stuck = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with serving_tiny(tiny, max_connections=1) as url, ExitStack() as opened:
        held = [opened.enter_context(connect(url)) for _ in range(1 + SPARE)]
        for connection in held:
            connection.sendall(stuck)
        for _ in range(ATTEMPTS):  # until all of them are being read
            held.append(opened.enter_context(connect(url)))
            held[-1].sendall(stuck)
            readable, _, _ = select.select(held[-1:], [], [], 0.01)
            answer = rest_of(held[-1]) if readable else b""
            if answer.startswith(b"HTTP/1.1 503"):
                break
        assert b"Retry-After: 1" in answer


def test_slow_bodies_do_not_stay(tmp_path: Path) -> None:
    limits = ConnectionLimits(body_time=AT_ONCE, linger_time=AT_ONCE)
    with bystanding(tmp_path, limits=limits) as bystander, ExitStack() as opened:
        held = [opened.enter_context(connect(bystander.url)) for _ in range(50)]
        for connection in held:
            connection.sendall(POST + b"Content-Length: 1000000\r\n\r\n{")
        assert {status(rest_of(connection)) for connection in held} == {408}
        bystander.read_on()
    assert bystander.longest_lag <= LONGEST_LAG


def test_a_body_that_keeps_coming_is_read(tiny: Path) -> None:
    body = b'{"content": "' + b"a" * 60_000 + b'"}'
    limits = ConnectionLimits(body_time=1.5, body_bytes=1000)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 6000):
            yield body[start : start + 6000]
            await asyncio.sleep(0.2)  # longer than `body_time` in all

    async def ask(url: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            headers = {"content-type": "application/json"}
            return await client.post(url, content=pieces(), headers=headers)

    with serving_tiny(tiny, limits=limits) as url:
        assert asyncio.run(ask(f"{url}/tokenize")).status_code == 200


def test_the_key_is_checked_before_the_body_is_read(tiny: Path) -> None:
    limits = ConnectionLimits(linger_time=AT_ONCE)
    with serving_tiny(tiny, api_keys=("sesame",), limits=limits) as url:
        with connect(url) as connection:
            connection.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
            answer = rest_of(connection)  # which also ends, though the body never came
        assert status(answer) == 401


def test_connections_between_requests_do_not_stay(tiny: Path) -> None:
    limits = ConnectionLimits(keep_alive=AT_ONCE, linger_time=AT_ONCE)
    with serving_tiny(tiny, limits=limits) as url, connect(url) as connection:
        connection.sendall(GET + b"\r\n")
        assert status(rest_of(connection)) == 200


def test_a_blank_line_does_not_keep_a_connection(tiny: Path) -> None:
    limits = ConnectionLimits(head_time=SOON)
    with serving_tiny(tiny, limits=limits) as url, connect(url) as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        assert status(rest_of(connection)) == 408


def test_requests_that_do_not_wait_for_answers_are_not_queued(tiny: Path) -> None:
    with serving_tiny(tiny) as url:
        with connect(url) as connection:
            send(connection, (GET + b"\r\n") * 20_000)
            answers = rest_of(connection)
        assert answers.count(b"HTTP/1.1 200") == answers.count(b"HTTP/1.1") == 1
        with httpx.Client(timeout=PATIENCE) as client:  # one after another they are all answered
            assert [client.get(f"{url}/health").status_code for _ in range(3)] == [200] * 3


def test_an_upgrade_to_another_protocol_is_not_taken(tiny: Path) -> None:
    for protocol in (b"websocket", b"h2c"):
        with serving_tiny(tiny) as url, connect(url) as connection:
            connection.sendall(GET + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n")
            assert status(rest_of(connection)) == 200


def test_who_does_not_read_their_answer_loses_it(tmp_path: Path) -> None:
    text = b"a" * (12 << 20)
    body = b'{"messages": [{"role": "user", "content": "' + text + b'"}]}'
    head = POST.replace(b"tokenize", b"apply-template") + b"Content-Length: %d\r\n\r\n" % len(body)
    limits = ConnectionLimits(stalled_time=AT_ONCE)
    with bystanding(tmp_path, limits=limits) as bystander:
        with connect(bystander.url, receive_buffer=4096) as connection:
            connection.sendall(head + body)
            poll = select.poll()
            poll.register(connection, select.POLLERR | select.POLLHUP)
            assert poll.poll(PATIENCE * 1000), "the server keeps the answer for ever"
            assert len(rest_of(connection)) < len(text)
        bystander.read_on()


def test_requests_that_are_no_http_get_an_answer(tiny: Path) -> None:
    with serving_tiny(tiny) as url:
        for data in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"CONNECT a:1 HTTP/1.1\r\n\r\n",
            b"a b c d\r\n",
        ):
            with connect(url) as connection:
                connection.sendall(data)
                assert status(rest_of(connection)) == 400


def test_only_http_1_0_may_leave_the_host_out(tiny: Path) -> None:
    with serving_tiny(tiny) as url:
        for version, expected in ((b"1.0", 200), (b"1.1", 400)):
            with connect(url) as connection:
                connection.sendall(b"GET /health HTTP/%s\r\nConnection: close\r\n\r\n" % version)
                assert status(rest_of(connection)) == expected


def test_handshakes_that_do_not_end_do_not_stay(tiny: Path, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    options = {"tls_certificate": certificate, "tls_key": key, "max_connections": 8}
    trusting = ssl.create_default_context(cafile=str(certificate))
    limits = ConnectionLimits(handshake_time=AT_ONCE)
    with serving_tiny(tiny, limits=limits, **options) as url, connect(url) as connection:
        assert rest_of(connection) == b""
    with serving_tiny(tiny, **options) as url, ExitStack() as opened:
        for _ in range(60):  # the oldest handshake gives way
            opened.enter_context(connect(url))
        assert httpx.get(f"{url}/v1/models", verify=trusting, timeout=PATIENCE).status_code == 200
    limits = ConnectionLimits(head_time=SOON, linger_time=SOON)
    with serving_tiny(tiny, limits=limits, **options) as url:
        connection = trusting.wrap_socket(connect(url), server_hostname="127.0.0.1")
        connection.sendall(GET)
        assert status(rest_of(connection)) == 408


def test_descriptors_are_kept_in_reserve() -> None:
    program = """
import resource
from ingot.errors import ConfigError
from ingot.server.http.connection_limits import room_for

for soft, hard in (2000, 4096), (256, 4096), (200, 200), (100, 100):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        print(room_for(1024, 32), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    except ConfigError as error:
        print(error)
"""
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[:3] == ["1024 2000", "1024 1184", "40 200"]
    assert "ulimit -n" in said[3]
