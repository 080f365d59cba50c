"""Responses that are made in pieces, in threads: their JSON, their limits, their errors."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from in_process import asgi_client
from serving import PATIENCE

from ingot.errors import ThreadLimitError
from ingot.server.http.json_response import RawJson, json_pieces
from ingot.server.threads import iterate_in_threads, run_in_thread
from tiny_llama import Sizes, write_tiny_llama

FIELDS = {"max_tokens": 20, "ignore_eos": True, "temperature": 0}
PROMPT = {"prompt": "abc", **FIELDS}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("long") / "tiny.gguf")


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let no thread of Python's start: there is no memory for its stack."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_pieces_are_the_json_of_the_whole() -> None:
    def entries() -> Iterator[object]:
        for number in range(5000):
            yield {"n": number, "inner": iter([1, "\udc80ä", None])}

    pieces = list(
        json_pieces({"head": "x", "list": entries(), "none": iter(()), "raw": RawJson("[1]")})
    )
    assert len(pieces) > 4
    assert max(map(len, pieces)) < 40_000
    inner = [1, "\udc80ä", None]
    whole = {
        "head": "x",
        "list": [{"n": number, "inner": inner} for number in range(5000)],
        "none": [],
        "raw": [1],
    }
    assert "".join(pieces) == json.dumps(whole, separators=(",", ":"))
    assert "".join(json_pieces([1, {"a": 2}])) == '[1,{"a":2}]'


@pytest.mark.parametrize(
    ("path", "fields", "places"),
    [
        ("/v1/completions", {"logprobs": 5, "n": 2}, ("choices", "logprobs", "top_logprobs")),
        ("/v1/completions", {"logprobs": 5, "echo": True}, ("choices", "logprobs", "tokens")),
        (
            "/v1/chat/completions",
            {"logprobs": True, "top_logprobs": 5, "n": 2},
            ("choices", "logprobs", "content"),
        ),
        ("/completion", {"n_probs": 5}, ("completion_probabilities",)),
        ("/completion", {"n_probs": 5, "n_cmpl": 2}, ("completion_probabilities",)),
    ],
)
def test_whole_responses_with_logprobs_are_sent_in_pieces(
    tiny: Path, path: str, fields: dict[str, object], places: tuple[str, ...]
) -> None:
    messages = {"messages": [{"role": "user", "content": "a"}], **FIELDS}
    asked = messages if "chat" in path else PROMPT

    async def run() -> httpx.Response:
        async with asgi_client(tiny) as client:
            return await client.post(path, json={**asked, **fields}, timeout=PATIENCE)

    response = asyncio.run(run())
    assert response.status_code == 200
    assert "content-length" not in response.headers
    found = response.json()
    for place in places:
        found = found[0] if isinstance(found, list) else found
        found = found[place]
    assert len(found) >= 20


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embedding"])
def test_vectors_that_are_not_numbers_are_an_error(tmp_path: Path, path: str) -> None:
    broken = np.full(Sizes().width, np.nan, np.float32)
    model = write_tiny_llama(tmp_path / "nan.gguf", tensors={"output_norm.weight": broken})

    async def run() -> httpx.Response:
        async with asgi_client(model) as client:
            return await client.post(path, json={"input": ["a", "b"]})

    response = asyncio.run(run())
    assert response.status_code == 500
    assert "input 0 is NaN or infinite" in response.json()["error"]["message"]


def test_a_server_without_threads_says_so(tiny: Path) -> None:
    async def run() -> None:
        async with asgi_client(tiny) as client:
            assert (await client.get("/props")).status_code == 200  # the model is open
            asyncio.get_running_loop().set_default_executor(_pool())
            with no_more_threads():
                refused = await client.post("/v1/completions", json=PROMPT)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_unavailable"
            assert refused.headers["retry-after"] == "1"
            done = await client.post("/v1/completions", json=PROMPT, timeout=PATIENCE)
            assert done.status_code == 200
            status = (await client.get("/api/status")).json()["models"][0]
            assert (status["running"], status["waiting"]) == (0, 0)

    asyncio.run(run())


def test_a_refused_call_never_runs() -> None:
    calls: list[str] = []

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(_pool())
        with no_more_threads(), pytest.raises(ThreadLimitError):
            await run_in_thread(calls.append, "refused")
        await run_in_thread(calls.append, "run")  # the thread finds both calls in the queue
        with pytest.raises(RuntimeError, match="its own"):
            await run_in_thread(_fail)

    asyncio.run(run())
    assert calls == ["run"]


def test_values_are_made_in_threads() -> None:
    async def run() -> list[int]:
        values = (threading.get_ident() for _ in range(3))
        return [value async for value in iterate_in_threads(values)]

    idents = asyncio.run(run())
    assert len(idents) == 3
    assert threading.get_ident() not in idents


def _fail() -> None:
    raise RuntimeError("its own")


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)
