"""What `/health` says of a model that hangs, recovers or has failed: on a tiny one, in process."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from serving import PATIENCE

from ingot.engine import EngineOptions
from ingot.engine.loop import StepLoop
from ingot.server import ServedModel, ServerOptions
from ingot.server.app import application
from ingot.server.state import Server
from tiny_llama import write_tiny_llama

ASK = {"prompt": "abc", "max_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("health") / "tiny.gguf")


@asynccontextmanager
async def asked(path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, StepLoop]]:
    """A client of a server that has answered once, and the loop of its model."""
    engine = EngineOptions(threads=1, step_timeout=2.0)
    server = Server(ServerOptions(models=(ServedModel(name="tiny", path=path, engine=engine),)))
    transport = httpx.ASGITransport(application(server))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/health")).json() == {"status": "ok"}
            assert (await client.post("/v1/completions", json=ASK)).status_code == 200
            llm = server.catalog.default.llm
            assert llm is not None
            yield client, llm.engine._loop
    finally:
        await server.close()


async def statuses(client: httpx.AsyncClient) -> list[int]:
    return [(await client.get(path)).status_code for path in ("/health", "/v1/health", "/ready")]


async def until_healthy(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE):
        while await statuses(client) != [200] * 3:
            await asyncio.sleep(0.01)


def test_a_model_that_hangs_and_recovers(tiny: Path) -> None:
    async def ask() -> None:
        go_on = threading.Event()
        async with asked(tiny) as (client, loop):
            assert await statuses(client) == [200] * 3
            loop._inbox.put(lambda: go_on.wait(PATIENCE) and None)
            try:
                waiting = await client.post("/v1/completions", json=ASK)
                said = await client.get("/health")
                assert await statuses(client) == [503] * 3
                model = (await client.get("/api/status")).json()["models"][0]
            finally:
                go_on.set()
            for answer in (waiting, said):
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "engine_unavailable"
                assert "step_timeout is 2 s" in answer.json()["error"]["message"]
            assert model["step_seconds"] > 2
            await until_healthy(client)
            assert (await client.post("/v1/completions", json=ASK)).status_code == 200

    asyncio.run(ask())


def test_a_model_that_has_failed(tiny: Path) -> None:
    def broken() -> None:
        raise SystemExit("of the inside")

    async def ask() -> None:
        async with asked(tiny) as (client, loop):
            loop._inbox.put(broken)
            async with asyncio.timeout(PATIENCE):
                while await statuses(client) != [503] * 3:
                    await asyncio.sleep(0.01)
            said = (await client.get("/health")).json()["error"]["message"]
            assert "of the inside" in said
            refused = await client.post("/v1/completions", json=ASK)
            assert (refused.status_code, refused.json()["error"]["message"]) == (503, said)

    asyncio.run(ask())
