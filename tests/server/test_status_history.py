"""What the server remembers for dashboards: the last minutes, and the parts of ended requests."""

import asyncio
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions
from ingot.server.app import application
from ingot.server.state import Server
from ingot.server.status_history import WINDOW_SECONDS, StatusHistory
from models.test_mtp import with_mtp
from tiny_eagle import TinyEagle
from tiny_llama import write_tiny_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("server") / "tiny.gguf")


def server_of(path: Path, **engine: object) -> Server:
    options = EngineOptions(threads=1, **engine)
    return Server(ServerOptions(models=(ServedModel(name="tiny", path=path, engine=options),)))


def ask(http: TestClient, prompt: str) -> None:
    body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    assert http.post("/v1/completions", json=body).status_code == 200


def test_the_past_is_there_when_a_dashboard_opens(tiny: Path) -> None:
    server = server_of(tiny)
    with TestClient(application(server), base_url="http://localhost") as http:
        ask(http, "one")
        http.portal.call(server.history.take)
        samples = http.get("/api/status/history").json()["samples"]
        now = http.get("/api/status").json()["models"][0]
    counts = samples[-1]["models"]["tiny"]
    assert counts["generated_tokens"] == 24
    assert {name: now[name] for name in counts} == counts  # the names and values of the status
    ages = [sample["age"] for sample in samples]
    assert ages == sorted(ages, reverse=True)


def test_ended_requests_have_their_parts(tiny: Path) -> None:
    with TestClient(application(server_of(tiny)), base_url="http://localhost") as http:
        ask(http, "one two three")
        assert http.post("/v1/completions", json={"prompt": 7}).status_code == 400
        (ended,) = http.get("/api/status").json()["ended"]
    assert (ended["model"], ended["generated_tokens"]) == ("tiny", 24)
    assert ended["prompt_tokens"] > 0
    assert ended["prompt_seconds"] > 0
    assert ended["generation_seconds"] > 0
    assert ended["queue_seconds"] >= 0


@pytest.mark.parametrize("how", ["ngram", "mtp", "eagle"])
def test_guesses_are_counted(tiny: Path, tmp_path: Path, how: str) -> None:
    if how == "eagle":
        draft = TinyEagle(layers=(0, 1, 2)).write(tmp_path / "eagle.gguf")
        server = server_of(tiny, draft=draft)
    else:
        path = with_mtp("glm4moe").write(tmp_path / "mtp.gguf") if how == "mtp" else tiny
        server = server_of(path, speculation=how)
    with TestClient(application(server), base_url="http://localhost") as http:
        ask(http, "one two one two one two one two one two")
        again = {"prompt": "one two " * 9, "n_predict": 24, "temperature": 0, "ignore_eos": True}
        drafts = http.post("/completion", json=again).json()["timings"]
        model = http.get("/api/status").json()["models"][0]
        metrics = http.get("/metrics").text
    assert model["guessed_tokens"] > drafts["draft_n"] > 0
    assert 0 <= drafts["draft_n_accepted"] <= drafts["draft_n"]
    assert 0 <= model["accepted_tokens"] <= model["guessed_tokens"]
    assert f'ingot_guessed_tokens_total{{model="tiny"}} {model["guessed_tokens"]}.0' in metrics
    assert 0 < model["text_steps"] == model["generated_tokens"] - model["accepted_tokens"]
    per_step = model["generated_tokens"] / model["text_steps"]
    assert f'ingot_tokens_per_step{{model="tiny"}} {per_step}' in metrics


def test_only_the_last_minutes_are_kept(tiny: Path) -> None:
    async def fill() -> StatusHistory:
        server = server_of(tiny)
        times = iter(range(10_000))
        history = StatusHistory(server.catalog, lambda: float(next(times)))
        for _ in range(3 * WINDOW_SECONDS):
            history.take()
        return history

    history = asyncio.run(fill())
    assert [sample.at for sample in history.samples] == list(range(240, 360))
    assert history.age(history.samples[-1].at) == 1
