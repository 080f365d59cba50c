"""The memory that bodies of all requests may hold together, and what a body must be declared as."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from in_process import asgi_client
from serving import PATIENCE

from ingot.server.http.body import SMALL_BODY
from tiny_llama import write_tiny_llama

JSON = {"content-type": "application/json"}
BUDGET = 1 << 20


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("budget") / "tiny.gguf")


def body(size: int) -> bytes:
    return b'{"content": "' + b"a" * (size - 15) + b'"}'


async def send(client: httpx.AsyncClient, content: bytes | AsyncIterator[bytes]) -> httpx.Response:
    return await client.post("/tokenize", content=content, headers=JSON, timeout=PATIENCE)


@pytest.mark.parametrize("announced", [True, False])
def test_bodies_beyond_the_budget_are_refused_until_others_end(
    tiny: Path, *, announced: bool
) -> None:
    async def run() -> None:
        first, released = asyncio.Event(), asyncio.Event()
        large, second = body(BUDGET * 3 // 4), body(BUDGET // 2)

        async def slow() -> AsyncIterator[bytes]:
            yield large[:-1]
            first.set()
            await released.wait()
            yield large[-1:]

        async def chunked(content: bytes) -> AsyncIterator[bytes]:
            yield content

        async with asgi_client(tiny, max_body=BUDGET, max_bodies=BUDGET) as client:
            held = asyncio.create_task(send(client, slow()))
            await first.wait()
            refused = await send(client, second if announced else chunked(second))
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert "bodies of current requests" in refused.json()["error"]["message"]
            small = await send(client, body(SMALL_BODY))
            assert small.status_code == 200
            released.set()
            assert (await held).status_code == 200
            for _ in range(4):  # what each held is free again
                assert (await send(client, second)).status_code == 200

    asyncio.run(run())


def test_one_body_of_the_largest_size_always_has_room(tiny: Path) -> None:
    async def run() -> None:
        async with asgi_client(tiny, max_body=BUDGET, max_bodies=1) as client:
            assert (await send(client, body(BUDGET))).status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (None, 400),
        ("text/plain", 400),
        ("application/x-www-form-urlencoded", 400),
        ("application/jsonx", 400),
        ("text/plain; application/json", 400),
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
    ],
)
def test_a_body_must_be_declared_as_json(tiny: Path, content_type: str | None, status: int) -> None:
    async def run() -> None:
        headers = {} if content_type is None else {"content-type": content_type}
        async with asgi_client(tiny) as client:
            response = await client.post("/tokenize", content=body(20), headers=headers)
            assert response.status_code == status
            assert status == 200 or "Content-Type: application/json" in response.text

    asyncio.run(run())
