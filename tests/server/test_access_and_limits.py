"""API keys, limits, metrics and errors of a server: with a tiny model, in this process."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import PATIENCE
from starlette.testclient import TestClient

from ingot import LLM
from ingot.engine import EngineOptions
from ingot.engine.model.on_gpu import OnGpu
from ingot.engine.model.placement import Placed
from ingot.errors import ConfigError
from ingot.server import ServedModel, ServerOptions, create_app
from tiny_llama import write_tiny_llama

ASK = {"prompt": "abc", "max_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("server") / "tiny.gguf")


def options(path: Path, engine: EngineOptions | None = None, **fields: Any) -> ServerOptions:
    names = fields.pop("names", ("tiny",))
    engine = engine or EngineOptions(threads=1)
    models = tuple(ServedModel(name=name, path=path, engine=engine) for name in names)
    return ServerOptions(models=models, **fields)


@contextmanager
def client(path: Path, engine: EngineOptions | None = None, **fields: Any) -> Iterator[TestClient]:
    app = create_app(options(path, engine, **fields))
    with TestClient(app, base_url="http://localhost") as opened:
        yield opened


def test_a_key_is_needed_if_there_are_keys(tiny: Path) -> None:
    with client(tiny, api_keys=("sesame", "second")) as http:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "sesam"}):
            refused = http.post("/v1/completions", json=ASK, headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "invalid_api_key"
            assert refused.headers["www-authenticate"] == "Bearer"
        for headers in (
            {"authorization": "Bearer sesame"},
            {"authorization": "bearer second"},
            {"x-api-key": "second"},
        ):
            assert http.post("/v1/completions", json=ASK, headers=headers).status_code == 200
        assert http.get("/health").status_code == 200
        assert http.get("/ready").status_code == 200
        for path in ("/metrics", "/api/status", "/v1/models", "/openapi.json"):
            assert http.get(path).status_code == 401


def test_errors_have_the_shape_of_their_family(tiny: Path) -> None:
    with client(tiny, api_keys=("k",)) as http:
        openai = http.post("/v1/chat/completions", json={}).json()
        anthropic = http.post("/v1/messages", json={}).json()
        llama = http.post("/completion", json={}).json()
    assert set(openai["error"]) == {"message", "type", "param", "code"}
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "authentication_error")
    assert (llama["error"]["code"], llama["error"]["type"]) == (401, "authentication_error")


def test_only_this_machine_is_served_without_a_key(tiny: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        options(tiny, host=host)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(ConfigError, match="--api-key"):
            options(tiny, host=host)
        options(tiny, host=host, api_keys=("key",))
        options(tiny, host=host, allow_open=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"port": 70000},
        {"tls_key": Path("key.pem")},
        {"api_keys": ("",)},
        {"max_body": 0},
        {"time_limit": -1.0},
        {"shutdown_grace": -1.0},
        {"names": ("a", "a")},
        {"names": ()},
    ],
)
def test_options_that_make_no_sense_are_refused(tiny: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        options(tiny, **fields)


def test_pages_of_other_origins_ask_if_they_may(tiny: Path) -> None:
    preflight = {
        "origin": "https://chat.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    with client(tiny, cors_origins=("https://chat.example",), api_keys=("k",)) as http:
        allowed = http.options("/v1/completions", headers=preflight)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
        other = http.options("/v1/completions", headers=preflight | {"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers
        refused = http.get("/v1/models", headers={"origin": "https://chat.example"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example"
    with client(tiny) as http:
        plain = http.get("/v1/models", headers={"origin": "https://chat.example"})
        assert "access-control-allow-origin" not in plain.headers


def test_requests_that_are_too_large_are_refused(tiny: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(100):
            yield b"x" * 100

    with client(tiny, max_body=1000) as http:
        declared = http.post("/v1/completions", json={"prompt": "x" * 2000})
        streamed = http.post("/v1/completions", content=pieces())
        assert (declared.status_code, streamed.status_code) == (413, 413)
        assert "1000 bytes" in declared.json()["error"]["message"]
        assert http.post("/v1/completions", json=ASK).status_code == 200


def test_answers_have_a_limit(tiny: Path) -> None:
    with client(tiny, max_tokens=5) as http:
        refused = http.post("/v1/completions", json=ASK | {"max_tokens": 6})
        assert refused.status_code == 400
        assert "at most 5" in refused.json()["error"]["message"]
        ask = {"messages": [{"role": "user", "content": "a"}], "ignore_eos": True}
        answer = http.post("/v1/chat/completions", json=ask).json()
        assert answer["usage"]["completion_tokens"] == 5
    with client(tiny, time_limit=1e-6) as http:
        late = http.post("/v1/completions", json=ASK | {"max_tokens": 200}).json()
        assert late["choices"][0]["finish_reason"] == "length"
        assert late["usage"]["completion_tokens"] < 200


def test_a_full_queue_says_when_to_come_back(tiny: Path) -> None:
    engine = EngineOptions(threads=1, max_running=1, max_queue=1)
    with client(tiny, engine) as http:
        full = http.post("/v1/completions", json=ASK | {"n": 40, "max_tokens": 100})
        assert full.status_code == 429
        assert full.headers["retry-after"] == "1"
        assert full.json()["error"]["type"] == "rate_limit_error"
        time.sleep(int(full.headers["retry-after"]))
        assert http.post("/v1/completions", json=ASK).status_code == 200


def test_requests_have_ids_and_lines_in_the_log(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with client(tiny) as http:
        given = http.post("/v1/completions", json=ASK, headers={"x-request-id": "mine-1"})
        made = http.get("/nowhere%0aelse", headers={"x-request-id": "two words"})
    assert given.headers["x-request-id"] == "mine-1"
    assert re.fullmatch("[0-9a-f]{32}", made.headers["x-request-id"])
    first, second = capsys.readouterr().err.splitlines()
    assert " id=mine-1 " in first
    assert re.search(
        r"method=POST path=/v1/completions status=200 seconds=[\d.]+ model=tiny "
        r"prompt_tokens=4 reused_tokens=0 generated_tokens=3$",
        first,
    )
    assert r'path="/nowhere\nelse" status=404' in second


def test_measurements_count_what_happens(tiny: Path) -> None:
    with client(tiny) as http:
        for _ in range(3):
            http.post("/v1/completions", json=ASK | {"max_tokens": 9})
        http.post("/v1/completions", json={"prompt": 5})
        http.get("/nowhere")
        text = http.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    path = 'method="POST",path="/v1/completions"'
    assert float(values[f'ingot_requests_total{{{path},status="200"}}']) == 3
    assert float(values[f'ingot_requests_total{{{path},status="400"}}']) == 1
    assert float(values['ingot_requests_total{method="GET",path="other",status="404"}']) == 1
    assert float(values['ingot_generated_tokens_total{model="tiny"}']) == 27
    assert float(values['ingot_time_to_first_token_seconds_count{model="tiny"}']) == 3
    assert float(values['ingot_time_between_tokens_seconds_count{model="tiny"}']) == 24
    assert float(values['ingot_running{model="tiny"}']) == 0
    assert "ingot_waiting" in text
    with LLM(tiny, threads=1) as llm:
        assert float(values['ingot_copied_bytes{model="tiny"}']) == llm.stats.copied_bytes
    for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"):
        assert f'vllm:{name}{{model_name="' in text
    assert "ingot_reused_tokens_total" in text


def test_models_are_opened_when_asked_for_and_closed_when_idle(tiny: Path) -> None:
    def loaded(http: TestClient) -> dict[str, bool]:
        models = http.get("/api/status").json()["models"]
        return {model["name"]: model["loaded"] for model in models}

    with client(tiny, names=("one", "two"), idle_unload=3600) as http:
        assert loaded(http) == {"one": True, "two": False}
        answer = http.post("/v1/completions", json=ASK | {"model": "two"}).json()
        assert answer["model"] == "two"
        assert loaded(http) == {"one": True, "two": True}
    with client(tiny, names=("one", "two"), idle_unload=0.01) as http:
        assert http.post("/v1/completions", json=ASK | {"model": "two"}).status_code == 200
        deadline = time.monotonic() + PATIENCE
        while any(loaded(http).values()):
            assert time.monotonic() < deadline, "models that nobody used stayed open"
            time.sleep(0.01)
        assert http.post("/v1/completions", json=ASK | {"model": "one"}).status_code == 200
        unknown = http.post("/v1/completions", json=ASK | {"model": "three"})
        assert unknown.status_code == 404
        assert "one, two" in unknown.json()["error"]["message"]
        assert unknown.json()["error"]["code"] == "model_not_found"
        assert http.get("/v1/models/two").json()["id"] == "two"
        assert http.get("/v1/models/three").status_code == 404


def test_a_model_that_cannot_be_opened_is_an_answer(tiny: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    models = tuple(ServedModel(name=path.stem, path=path) for path in (tiny, broken))
    app = create_app(ServerOptions(models=models))
    with TestClient(app, base_url="http://localhost") as http:
        refused = http.post("/v1/completions", json=ASK | {"model": "broken"})
        assert refused.status_code == 500
        assert "version" in refused.json()["error"]["message"]
        assert http.post("/v1/completions", json=ASK | {"model": "tiny"}).status_code == 200


def test_what_is_not_there_is_said(tiny: Path) -> None:
    with client(tiny) as http:
        assert (
            http.get("/v1/nothing").json()["error"]["message"] == "there is nothing at /v1/nothing"
        )
        wrong = http.get("/v1/completions")
        assert wrong.status_code == 405
        assert wrong.headers["allow"] == "POST"
        assert "GET" in wrong.json()["error"]["message"]
        for content, reason in (
            (b"{", "quotes"),
            (b'{"prompt": "\xe9"}', "utf-8"),
            (b"[1e400]", "infinite"),
        ):
            bad = http.post(
                "/v1/completions", content=content, headers={"content-type": "application/json"}
            )
            assert bad.status_code == 400
            said = bad.json()["error"]["message"]
            assert said.startswith("the body is not valid JSON: ")
            assert reason in said


def test_the_api_is_listed_for_people(tiny: Path) -> None:
    with client(tiny, api_keys=("sesame",)) as http:
        assert 'href="docs"' in http.get("/").text
        answer = http.get("/docs")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        described = http.get("/openapi.json", headers={"x-api-key": "sesame"}).json()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in answer.text
    assert "<code>prompt</code> (required)" in answer.text
    assert "://" not in answer.text


def test_what_a_gpu_has_of_a_model(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(tiny) as http:
        assert http.get("/api/status").json()["models"][0]["gpu"] is None
        there = OnGpu("a card", 3, 7, 6, 3 << 30, 4_200_000_000, 2.0, ("iq3_s",))
        monkeypatch.setattr(Placed, "gpu", there)
    with client(tiny) as http:
        assert http.get("/api/status").json()["models"][0]["gpu"] == {
            "device": "a card",
            "layers": 3,
            "of_layers": 7,
            "allocations": 6,
            "allocated_bytes": 3 << 30,
            "sent_bytes": 4_200_000_000,
            "sent_seconds": 2.0,
            "decoded": ["iq3_s"],
        }
