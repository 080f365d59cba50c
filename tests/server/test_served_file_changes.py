"""A model file that is changed or replaced while it is being served."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from bystander import CONTEXT, LONGEST_LAG, Bystander, loop_of, running, slow_down
from serving import PATIENCE

from ingot import LLM
from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.state import Server
from tiny_llama import write_tiny_llama

ENGINE = EngineOptions(threads=1, context=CONTEXT)
LONG = {"llama.context_length": CONTEXT}
ASK: dict[str, Any] = {
    "model": "changing", "prompt": "abc", "max_tokens": 8, "temperature": 0, "ignore_eos": True
}  # fmt: skip
STREAM = ASK | {"stream": True, "max_tokens": 60_000, "logit_bias": {"97": 100}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "changing.gguf", keys=LONG)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """What may take its place."""
    return write_tiny_llama(tmp_path / "other", layers=1, keys=LONG)


@pytest.fixture
def served(path: Path, tmp_path: Path) -> Iterator[tuple[httpx.Client, Server, Bystander]]:
    """A server of two models: on the first one a bystander reads."""
    first = write_tiny_llama(tmp_path / "first.gguf", keys=LONG)
    models = tuple(ServedModel(name=file.stem, path=file, engine=ENGINE) for file in (first, path))
    options = ServerOptions(models=models, port=0, shutdown_grace=0)
    with running(options) as (url, server, loop):
        slow_down(loop_of(server).stepper)
        bystander = Bystander(url, server, loop)
        bystander.start()
        try:
            with httpx.Client(base_url=url, timeout=PATIENCE) as http:
                yield http, server, bystander
        finally:
            bystander.leave()


def text_in(line: str) -> str:
    """The text of a chunk: one token, or several if the client is slow."""
    text: str = json.loads(line.removeprefix("data: "))["choices"][0]["text"]
    return text


def text_of(path: Path) -> str:
    with LLM(path, threads=1) as llm:
        return llm.generate("abc", max_tokens=8, temperature=0, ignore_eos=True).text


def test_a_file_that_is_cut_while_it_is_read(
    served: tuple[httpx.Client, Server, Bystander], path: Path, other: Path
) -> None:
    http, _, bystander = served
    with http.stream("POST", "/v1/completions", json=STREAM) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert text_in(next(lines)).strip("a") == ""
        os.truncate(path, 0)
        *_, error = (line for line in lines if '"error"' in line)
    told = json.loads(error.removeprefix("data: "))["error"]
    assert told["code"] == "model_changed"
    assert "changing.gguf became shorter while it was in use" in told["message"]

    refused = http.post("/v1/completions", json=ASK)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert "became shorter" in refused.json()["error"]["message"]
    health = http.get("/health")
    assert health.status_code == 503
    assert "changing: " in health.json()["error"]["message"]
    bystander.read_on()
    assert bystander.longest_lag <= LONGEST_LAG

    other.rename(path)  # whole again, and another one
    answered = http.post("/v1/completions", json=ASK)
    assert answered.status_code == 200, answered.text
    assert answered.json()["choices"][0]["text"] == text_of(path)
    assert http.get("/health").status_code == 200


def test_a_file_that_is_written_to_is_opened_again(
    served: tuple[httpx.Client, Server, Bystander], path: Path, other: Path
) -> None:
    http, _, _ = served
    before = http.post("/v1/completions", json=ASK).json()["choices"][0]["text"]
    path.write_bytes(other.read_bytes())  # in place: the same inode
    after = http.post("/v1/completions", json=ASK).json()["choices"][0]["text"]
    assert after == text_of(other) != before


def test_a_file_that_is_replaced_serves_new_requests(
    served: tuple[httpx.Client, Server, Bystander], path: Path, other: Path
) -> None:
    http, _, _ = served
    before = http.post("/v1/completions", json=ASK).json()["choices"][0]["text"]
    assert before == text_of(path) != text_of(other)
    with http.stream("POST", "/v1/completions", json=STREAM) as answer:
        lines = (line for line in answer.iter_lines() if line)
        next(lines)
        other.rename(path)
        for _ in range(5):  # who reads the old one reads on
            assert text_in(next(lines)).strip("a") == ""
        beside = http.post("/v1/completions", json=ASK)
        assert beside.json()["choices"][0]["text"] == before  # both cannot be open at once
        assert http.get("/health").status_code == 200
    deadline = 0
    while (text := http.post("/v1/completions", json=ASK).json()["choices"][0]["text"]) == before:
        deadline += 1  # until the server has noticed that its reader has gone
        assert deadline < 1000
    assert text == text_of(path)


def test_a_file_that_is_replaced_by_a_broken_one_is_served_on(
    served: tuple[httpx.Client, Server, Bystander], path: Path, other: Path
) -> None:
    http, _, _ = served
    before = http.post("/v1/completions", json=ASK).json()["choices"][0]["text"]
    other.write_bytes(other.read_bytes()[:-1000])
    other.rename(path)
    assert http.post("/v1/completions", json=ASK).json()["choices"][0]["text"] == before
    assert http.get("/health").status_code == 200


def test_the_server_opens_a_changed_file_by_itself(
    served: tuple[httpx.Client, Server, Bystander], path: Path, other: Path
) -> None:
    http, server, bystander = served
    assert http.post("/v1/completions", json=ASK).status_code == 200
    os.truncate(path, 0)
    assert http.get("/health").status_code == 503
    look = server.catalog.open_broken  # what `watch` does every few seconds
    _run(bystander, look())
    assert http.get("/health").status_code == 503
    other.rename(path)
    _run(bystander, look())
    assert http.get("/health").status_code == 200


def _run(bystander: Bystander, work: Any) -> None:
    asyncio.run_coroutine_threadsafe(work, bystander.loop).result(PATIENCE)
