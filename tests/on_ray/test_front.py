"""The front with replicas that answer, refuse and die as the tests say; no cluster is started."""

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # it imports Ray
pytest.importorskip("ray", reason="Ray is not here: pip install 'ingot-llm[ray]'")

CHAT, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/api/chat"
EVENTS, LINES = "text/event-stream; charset=utf-8", "application/x-ndjson"


def start(kind: str) -> dict[str, Any]:
    headers = [(b"Content-Type", kind.encode()), (b"X-Request-Id", b"of the replica")]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def body(content: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def died() -> Exception:
    from ray.exceptions import RayActorError  # noqa: PLC0415

    return RayActorError()


def busy() -> Exception:
    from ray.serve.exceptions import BackPressureError  # noqa: PLC0415

    return BackPressureError(num_queued_requests=5, max_queued_requests=5)


class Streamed:
    """A stream of a replica: lists of messages; an error is raised."""

    def __init__(self, script: list[Any]) -> None:
        self._script = script
        self.cancelled = False

    async def __aiter__(self) -> AsyncIterator[list[dict[str, Any]]]:
        for part in self._script:
            if isinstance(part, Exception):
                raise part
            if part is WAITS:
                await asyncio.Event().wait()
            yield [part]

    def cancel(self) -> None:
        self.cancelled = True


WAITS: Any = object()  # a replica that does not go on


class Replicas:
    """A handle: each call is answered by the next script, and each broadcast by all of them."""

    def __init__(self, *scripts: list[Any]) -> None:
        self._scripts = list(scripts)
        self.streams: list[Streamed] = []
        self.asked: list[tuple[str, Any]] = []
        self.answer = SimpleNamespace(remote=self._answer)

    def options(self, **_: Any) -> "Replicas":
        return self

    def _answer(self, call: Any) -> Streamed:
        self.asked.append(("answer", call))
        self.streams.append(Streamed(self._scripts.pop(0)))
        return self.streams[-1]

    def broadcast(self, method: str, call: Any) -> Any:
        self.asked.append((method, call))

        async def results_async(*, return_exceptions: bool) -> list[Any]:
            assert return_exceptions
            return [
                each[0] if isinstance(each[0], Exception) else (str(number), each)
                for number, each in enumerate(self._scripts)
            ]

        return SimpleNamespace(results_async=results_async)


def ask(replicas: Replicas, path: str, method: str = "POST", content: bytes = b"{}") -> Any:
    """The response of a front of these replicas."""
    from ingot.ray.front import FrontApp  # noqa: PLC0415

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(FrontApp(replicas, max_body=100))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, content=content)

    return asyncio.run(asked())


def test_an_answer_comes_through() -> None:
    replicas = Replicas([start("application/json"), body(b"{"), body(b"}", more=False)])
    answer = ask(replicas, CHAT, content=b'{"a": 1}')
    assert (answer.status_code, answer.text) == (200, "{}")
    assert "x-request-id" not in answer.headers  # Serve's proxy sets it
    assert replicas.asked[0][1].body == b'{"a": 1}'
    assert replicas.streams[0].cancelled  # it holds nothing any more


def test_a_request_whose_replica_dies_before_it_answers_goes_to_another() -> None:
    whole = [start("application/json"), body(b"{}", more=False)]
    replicas = Replicas([died()], [died()], whole)
    assert ask(replicas, CHAT).text == "{}"
    assert len(replicas.asked) == 3


def test_it_is_tried_three_times() -> None:
    replicas = Replicas(*[[died()]] * 5)
    answer = ask(replicas, CHAT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "replica_lost")
    assert len(replicas.asked) == 3
    assert int(answer.headers["retry-after"]) > 0


def test_what_one_replica_keeps_is_not_asked_of_another() -> None:
    replicas = Replicas([died()], [start("application/json"), body(b"{}", more=False)])
    answer = ask(replicas, "/v1/files/file-1", "GET")
    assert (answer.status_code, len(replicas.asked)) == (503, 1)


@pytest.mark.parametrize(
    ("path", "kind"), [(CHAT, "queue_full"), (MESSAGES, "rate_limit_error"), (OLLAMA, None)]
)
def test_back_pressure_is_a_429(path: str, kind: str | None) -> None:
    answer = ask(Replicas([busy()]), path, content=b'{"messages": [1]}')
    assert answer.status_code == 429
    assert "all replicas are busy" in answer.text
    assert int(answer.headers["retry-after"]) > 0
    error = answer.json()["error"]
    assert kind is None or kind in (error["type"], error.get("code"))


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_a_stream_of_events_ends_with_an_error_when_its_replica_dies(path: str) -> None:
    first = b'data: {"a": 1}\n\n'
    answer = ask(Replicas([start(EVENTS), body(first), died()]), path)
    text = answer.text
    assert text.startswith(first.decode())
    last = text.removeprefix(first.decode())
    assert last.endswith("\n\n")
    lines = dict(line.split(": ", 1) for line in last.strip().split("\n"))
    error = json.loads(lines["data"])["error"]
    assert "is gone; try again" in error["message"]
    if path == MESSAGES:
        assert lines["event"] == "error"
        assert json.loads(lines["data"])["type"] == "error"
    else:
        assert "event" not in lines
        assert error["code"] == "replica_lost"
    assert "[DONE]" not in text


def test_a_stream_of_lines_ends_with_an_error_when_its_replica_dies() -> None:
    replicas = Replicas([start(LINES), body(b'{"done": false}\n'), died()])
    answer = ask(replicas, OLLAMA, content=b'{"messages": [1]}')
    first, last = answer.text.splitlines()
    assert json.loads(first) == {"done": False}
    assert "is gone; try again" in json.loads(last)["error"]


def test_a_broken_answer_does_not_look_whole() -> None:
    with pytest.raises(ConnectionResetError):
        ask(Replicas([start("application/json"), body(b'{"a"'), died()]), CHAT)


def test_all_replicas_are_asked_once() -> None:
    def metrics(count: int) -> list[dict[str, Any]]:
        text = f"# HELP n Text.\n# TYPE n counter\nn_total {count}\n"
        return [start("text/plain"), body(text.encode(), more=False)]

    replicas = Replicas(metrics(1), metrics(4))
    assert "n_total 5.0" in ask(replicas, "/metrics", "GET").text
    assert [method for method, _ in replicas.asked] == ["name_and_answer"]
    # One that dies meanwhile is left out; if all do, that is an error.
    assert "n_total 1.0" in ask(Replicas(metrics(1), [died()]), "/metrics", "GET").text
    assert ask(Replicas([died()], [died()]), "/metrics", "GET").status_code == 503
    with pytest.raises(ValueError, match="wrong"):
        ask(Replicas(metrics(1), [ValueError("wrong")]), "/metrics", "GET")


def test_a_body_that_is_too_large_is_not_read_to_its_end() -> None:
    replicas = Replicas([start("application/json"), body(b"{}", more=False)])

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 60

    ask(replicas, CHAT, content=pieces())  # type: ignore[arg-type]
    assert len(replicas.asked[0][1].body) == 120


def test_a_client_that_goes_cancels_the_call() -> None:
    from ingot.ray.front import FrontApp  # noqa: PLC0415

    replicas = Replicas([start(EVENTS), WAITS])

    async def asked() -> None:
        received = iter([{"type": "http.request", "body": b"{}"}])
        begun = asyncio.Event()

        async def receive() -> Any:
            if (message := next(received, None)) is None:
                await begun.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(_: Any) -> None:
            begun.set()

        app = FrontApp(replicas, max_body=100)  # type: ignore[arg-type]
        await app({"type": "http", "method": "POST", "path": CHAT, "headers": []}, receive, send)

    asyncio.run(asyncio.wait_for(asked(), 10))
    assert replicas.streams[0].cancelled


def test_files_and_stored_responses_stay_with_one_replica() -> None:
    from ingot.ray.call import call_of  # noqa: PLC0415
    from ingot.ray.router import OWNS, STARTED, PrefixRouter  # noqa: PLC0415

    router: Any = object.__new__(PrefixRouter)
    router.initialize_state()
    call = call_of({"type": "http", "method": "GET", "path": "/v1/files/file-1"}, b"")

    def chosen(owner: str | None = None, **started: float) -> list[str]:
        candidates: Any = [
            SimpleNamespace(
                replica_id=SimpleNamespace(unique_id=name),
                replica_metadata={STARTED: time, OWNS: name == owner},
            )
            for name, time in started.items()
        ]
        pending: Any = SimpleNamespace(args=[call])
        ranks = asyncio.run(router.choose_replicas(candidates, pending))
        return [each.replica_id.unique_id for rank in ranks for each in rank]

    assert chosen(m=10, z=11) == ["m"]
    assert chosen(a=20, m=10, z=11) == ["m"]  # a new one, whose name sorts first
    assert chosen(a=20, z=11) == ["z"]
    assert chosen(a=20, b=21, z=11, owner="b") == ["b"]  # it has the folder of batches
