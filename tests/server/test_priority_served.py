"""`priority` and `speculation` at every API.

Of the requests that wait, the one with the lowest value goes first.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import Ask, scripted_model, scripted_server

from holding import PATIENCE
from ingot.engine import EngineOptions

MESSAGES = {"messages": [{"role": "user", "content": "?"}]}
ASK: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {**MESSAGES, "max_tokens": 20},
    "/v1/completions": {"prompt": "?", "max_tokens": 20},
    "/v1/responses": {"input": "?", "max_output_tokens": 20},
    "/v1/messages": {**MESSAGES, "max_tokens": 20},
    "/completion": {"prompt": "?", "n_predict": 20},
    "/api/chat": {"model": "tiny", **MESSAGES, "stream": False},
    "/api/generate": {"model": "tiny", "prompt": "?", "stream": False},
}
Served = Callable[[Ask], Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that runs one request at a time."""
    model = scripted_model(tmp_path_factory.mktemp("priority"), "qwen2_5")
    fields = {"engine": EngineOptions(threads=1, max_running=1), "context_shift": True}
    with scripted_server(model, fields) as server:
        yield server


def body_of(path: str, **field: object) -> dict[str, Any]:
    if path.startswith("/api/"):
        return {**ASK[path], "options": {"num_predict": 20, **field}}
    return {**ASK[path], **field}


async def until(client: httpx.AsyncClient, state: str, wanted: int) -> None:
    """Wait until so many requests are running or waiting."""
    async with asyncio.timeout(PATIENCE):
        while True:
            text = (await client.get("/metrics")).text
            if re.search(rf'^ingot_{state}{{model="tiny"}} {wanted}\.0$', text, re.MULTILINE):
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("path", ASK)
def test_the_lowest_value_is_answered_first(served: Served, path: str) -> None:
    answered: list[int] = []

    async def ask(client: httpx.AsyncClient, priority: int) -> None:
        answer = await client.post(path, json=body_of(path, priority=priority))
        assert answer.status_code == 200, answer.text
        assert "warnings" not in answer.json()
        answered.append(priority)

    async def three(client: httpx.AsyncClient) -> None:
        endless = {"prompt": "?", "n_predict": -1, "ignore_eos": True}
        busy = asyncio.create_task(client.post("/completion", json=endless))
        await until(client, "running", 1)
        asked = []
        for number, priority in enumerate((2, 0, -1), start=1):
            asked.append(asyncio.create_task(ask(client, priority)))
            await until(client, "waiting", number)
        busy.cancel()
        await asyncio.gather(*asked)

    served(three)
    assert answered == [-1, 0, 2]


@pytest.mark.parametrize("path", ASK)
def test_it_is_a_whole_number(served: Served, path: str) -> None:
    for wrong in (1.5, "high", 1 << 40):
        body = body_of(path, priority=wrong)
        answer = served(lambda client, body=body: client.post(path, json=body))
        assert answer.status_code == 400, wrong
        assert "priority" in answer.text


@pytest.mark.parametrize("path", ASK)
def test_guesses_can_only_be_switched_off(path: str, tmp_path: Path) -> None:
    """A tiny model repeats itself, which n-grams guess."""
    model = scripted_model(tmp_path, "qwen2_5")
    limits = dict.fromkeys(("max_tokens", "max_output_tokens", "n_predict", "num_predict"), 150)
    engine = EngineOptions(threads=1, speculation="ngram")
    with scripted_server(model, {"engine": engine}) as served:

        async def guessed(client: httpx.AsyncClient, **field: object) -> int:
            body = body_of(path, temperature=0, ignore_eos=True, **field)
            for where in (body, body.get("options", {})):
                where.update((name, limits[name]) for name in limits if name in where)
            answer = await client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            assert "warnings" not in answer.json()
            status = (await client.get("/api/status")).json()
            return int(status["models"][0]["guessed_tokens"])

        assert served(lambda client: guessed(client, speculation="off")) == 0
        assert served(guessed) > 0
        for wrong in ("ngram", "mtp", True):
            body = body_of(path, speculation=wrong)
            answer = served(lambda client, body=body: client.post(path, json=body))
            assert answer.status_code == 400, wrong
            assert "speculation" in answer.text
            assert "'off' or 'auto'" in answer.text
