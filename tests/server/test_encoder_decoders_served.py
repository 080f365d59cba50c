"""An encoder-decoder at the usual endpoints: completions, chat, streams, embeddings."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import asgi_client

from ingot import LLM
from models.tiny_models import PROMPT, Fixture

FIXTURE = Fixture.load("t5")
PROMPTS = [FIXTURE.token_ids[:PROMPT], FIXTURE.token_ids[10:50], FIXTURE.token_ids[:3]]
MOST = 12
FIELDS = {"model": "tiny", "temperature": 0, "max_tokens": MOST, "ignore_eos": True}
CHAT = {**FIELDS, "messages": [{"role": "user", "content": "t1t2t3"}]}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FIXTURE.write(tmp_path_factory.mktemp("models") / "model.gguf")


def asked(path: Path, requests: list[tuple[str, dict[str, Any]]]) -> list[httpx.Response]:
    """The answers to requests that come at once."""

    async def ask() -> list[httpx.Response]:
        async with asgi_client(path) as client:
            posts = (client.post(url, json=body) for url, body in requests)
            return list(await asyncio.gather(*posts))

    return asyncio.run(ask())


def test_completions_at_once(path: Path) -> None:
    """Each is what the library writes alone."""
    answers = asked(path, [("/v1/completions", {**FIELDS, "prompt": ids}) for ids in PROMPTS])
    with LLM(path, threads=1) as llm:
        for ids, answer in zip(PROMPTS, answers, strict=True):
            found = answer.json()
            done = llm.generate(ids, temperature=0, max_tokens=MOST, ignore_eos=True)
            assert found["choices"][0]["text"] == done.text
            assert found["usage"]["prompt_tokens"] == len(ids)
            assert found["usage"]["completion_tokens"] == MOST


def test_chat_whole_and_as_a_stream(path: Path) -> None:
    whole, streamed = asked(
        path,
        [("/v1/chat/completions", CHAT), ("/v1/chat/completions", {**CHAT, "stream": True})],
    )
    text = whole.json()["choices"][0]["message"]["content"]
    events = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    assert text
    assert "".join(delta.get("content") or "" for delta in deltas) == text


def test_several_choices_and_embeddings(path: Path) -> None:
    body = {**FIELDS, "temperature": 1, "seed": 3, "n": 3, "prompt": PROMPTS[1]}
    choices, embedded = asked(
        path,
        [("/v1/completions", body), ("/v1/embeddings", {"model": "tiny", "input": PROMPTS[1]})],
    )
    assert len({choice["text"] for choice in choices.json()["choices"]}) == 3
    assert len(embedded.json()["data"][0]["embedding"]) == FIXTURE.metadata["embedding_length"]


def test_logprobs_of_a_prompt_are_refused(path: Path) -> None:
    body = {**FIELDS, "prompt": PROMPTS[2], "echo": True, "logprobs": 1}
    (answer,) = asked(path, [("/v1/completions", body)])
    assert answer.status_code == 400
    assert "encoder-decoder" in answer.json()["error"]["message"]
