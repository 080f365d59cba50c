"""Requests of pages in a browser: which host names and origins are allowed."""

import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from ingot.engine import EngineOptions
from ingot.server import ServedModel, ServerOptions, create_app
from ingot.server.app import application
from ingot.server.state import Server
from tiny_llama import write_tiny_llama

ASK = {"prompt": "abc", "max_tokens": 1}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("origins") / "tiny.gguf")


@contextmanager
def client(path: Path, **fields: Any) -> Iterator[TestClient]:
    model = ServedModel(name="tiny", path=path, engine=EngineOptions(threads=1))
    app = create_app(ServerOptions(models=(model,), **fields))
    with TestClient(app, base_url="http://localhost:8080") as opened:
        yield opened


def code(answer: httpx.Response) -> str | None:
    return None if answer.is_success else answer.json()["error"]["code"]


def host(http: TestClient, name: str, path: str = "/v1/models") -> str | None:
    return code(http.get(path, headers={"host": name}))


def post(http: TestClient, **headers: str) -> str | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return code(http.post("/v1/completions", json=ASK, headers=named))


def test_a_name_that_was_made_to_point_here_is_refused(tiny: Path) -> None:
    foreign = ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.io")
    with client(tiny) as http:
        for name in foreign:
            for path in ("/v1/models", "/health", "/"):
                refused = http.get(path, headers={"host": name})
                assert refused.status_code == 403
                assert f"--allowed-host {name.partition(':')[0]}" in refused.text
    with client(tiny, allowed_hosts=("chat.example",)) as http:
        assert host(http, "evil.example") == "host_not_allowed"


def test_names_of_this_machine_and_addresses_are_its_own(tiny: Path) -> None:
    machine = socket.gethostname()
    own = ("localhost", "LOCALHOST.:8080", "ingot.localhost", "127.0.0.1:8080", "127.9.9.9")
    addresses = ("[::1]:8080", "[::1]", "192.168.1.7:8080", "[fe80::1]")
    with client(tiny) as http:
        for name in (*own, *addresses, machine, f"{machine.partition('.')[0]}.local"):
            assert host(http, name) is None, name


def test_names_that_were_allowed_are_answered(tiny: Path) -> None:
    with client(tiny, allowed_hosts=("Chat.example", "b.example")) as http:
        assert host(http, "chat.example:443") is None
        assert host(http, "b.example") is None
    with client(tiny, host="box.example", allow_open=True) as http:
        assert host(http, "box.example:8080") is None
    with client(tiny, allowed_hosts=("*",)) as http:
        assert host(http, "evil.example") is None


def test_a_key_does_for_a_name(tiny: Path) -> None:
    with client(tiny, api_keys=("sesame",)) as http:
        assert host(http, "evil.example") == "invalid_api_key"
        headers = {"host": "ingot.svc.cluster", "x-api-key": "sesame"}
        assert http.get("/v1/models", headers=headers).status_code == 200


def test_a_request_has_one_host(tiny: Path) -> None:
    with client(tiny) as http:
        twice = [("host", "localhost"), ("host", "evil.example")]
        assert http.get("/health", headers=twice).status_code == 400
        for broken in (b"a b", b"[::1", b"localhost:x", b"evil.example/", "é".encode()):
            assert http.get("/health", headers=[(b"host", broken)]).status_code == 400, broken


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost:8080.evil.example"},
        {"origin": "http://localhost:8080", "sec_fetch_site": "cross-site"},
        {"origin": "file://localhost:8080"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_pages_elsewhere_change_nothing(tiny: Path, headers: dict[str, str]) -> None:
    with client(tiny) as http:
        assert post(http, **headers) == "origin_not_allowed"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        assert http.get("/v1/models", headers=named).status_code == 200  # and read nothing


def test_our_own_page_and_programs_are_answered(tiny: Path) -> None:
    with client(tiny) as http:
        assert post(http) is None
        assert post(http, origin="http://localhost:8080") is None
        assert post(http, origin="http://localhost:8080", sec_fetch_site="same-origin") is None
        assert post(http, sec_fetch_site="none") is None
        assert post(http, host="127.0.0.1", origin="http://127.0.0.1") is None
    with client(tiny, allowed_hosts=("chat.example",)) as http:  # after a proxy that speaks TLS
        assert post(http, host="chat.example", origin="https://chat.example") is None
        assert post(http, host="chat.example:443", origin="https://chat.example") is None


def test_pages_of_origins_that_were_allowed_ask(tiny: Path) -> None:
    with client(tiny, cors_origins=("https://chat.example",)) as http:
        cross = {"sec_fetch_site": "cross-site"}
        assert post(http, origin="https://chat.example", **cross) is None
        assert post(http, origin="https://b.example", **cross) == "origin_not_allowed"
    with client(tiny, cors_origins=("*",)) as http:
        assert post(http, origin="https://b.example") is None


def test_an_allowed_origin_is_named_in_the_answer(tiny: Path) -> None:
    preflight = {
        "origin": "https://b.example",
        "access-control-request-method": "POST",
        "access-control-request-private-network": "true",  # from a public page to this machine
    }
    for origins in (("*",), ("https://b.example",)):
        with client(tiny, cors_origins=origins) as http:
            for answer in (
                http.get("/v1/models", headers={"origin": "https://b.example"}),
                http.options("/v1/completions", headers=preflight),
            ):
                assert answer.status_code == 200
                assert answer.headers["access-control-allow-origin"] == "https://b.example"
                assert answer.headers["access-control-allow-credentials"] == "true"
                assert "Origin" in answer.headers["vary"]


def test_a_form_of_another_origin_does_not_erase_the_cache(tiny: Path) -> None:
    with client(tiny) as http:
        assert http.post("/v1/completions", json=ASK | {"prompt": "a" * 100}).status_code == 200

        def kept() -> int:
            return http.get("/api/status").json()["models"][0]["cache_blocks_kept"]

        before = kept()
        assert before > 0
        form = {
            "content-type": "application/x-www-form-urlencoded",
            "origin": "http://evil.example",
        }
        refused = http.post("/slots/0?action=erase", content=b"", headers=form)
        assert refused.status_code == 403
        assert kept() == before
        assert http.post("/slots/0?action=erase").status_code == 200
        assert kept() == 0


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_what_a_form_can_send_is_no_json(tiny: Path, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}
    with client(tiny) as http:
        for path in ("/v1/completions", "/completion", "/v1/messages", "/tokenize"):
            answer = http.post(path, content=b'{"prompt": "a"}', headers=headers)
            assert answer.status_code == 400
            assert "Content-Type: application/json" in answer.text


def test_nothing_is_changed_by_asking(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.server.catalog._LOOK_SECONDS", 1000)  # only the test closes models
    models = tuple(
        ServedModel(name=name, path=tiny, engine=EngineOptions(threads=1), sampling={"top_k": 7})
        for name in ("open", "sleeping", "unloaded")
    )
    server = Server(ServerOptions(models=models, idle_unload=1000))
    app = application(server)
    with TestClient(app, base_url="http://localhost:8080") as http:
        assert http.post("/v1/completions", json={**ASK, "model": "sleeping"}).is_success
        assert http.post("/api/generate", json={"model": "sleeping", "keep_alive": 0}).is_success
        assert http.post("/v1/completions", json={**ASK, "model": "open"}).is_success

        def state() -> object:
            assert server.catalog.entries["open"].llm is not None
            counters = server.catalog.entries["open"].llm.stats
            return (
                counters.steps,
                counters.blocks_kept,
                [
                    (entry.status, entry.used, entry.leases, entry.keep_alive, id(entry.llm))
                    for entry in server.catalog.entries.values()
                ],
            )

        before = state()
        paths = get_paths(app.routes)
        assert {"/props", "/slots", "/lora-adapters", "/tokenizer_info", "/metrics"} <= set(paths)
        for path in paths:
            for model in (None, "open", "sleeping", "unloaded"):
                asked = re.sub(r"\{\w+(:path)?\}", model or "0", path)
                answer = http.get(asked, params={"model": model} if model else {})
                assert answer.status_code in (200, 404), asked  # or there is no such thing
                assert state() == before, asked
        for model in ("sleeping", "unloaded"):
            assert http.get(f"/v1/models/{model}").json()["status"]["value"] == model
        assert http.get("/slots/0", params={"action": "erase"}).status_code == 405
        assert state() == before


UNASKED = {
    *("/models/load", "/models/unload", "/models/download", "/models/download/cancel"),  # a 405
    "/models/sse",  # it does not end; test_router.py reads it
}


def get_paths(routes: Iterable[Any]) -> list[str]:
    """All paths that can be read, also those of routers in routers."""
    found: list[str] = []
    for route in routes:
        if included := getattr(route, "original_router", None):
            found += get_paths(included.routes)
        elif "GET" in (route.methods or ()) and route.path not in UNASKED:
            found.append(route.path)
    return found


def test_a_closed_model_is_described_without_opening_it(tiny: Path) -> None:
    engine = EngineOptions(threads=1, context=200, max_running=3)
    models = (
        ServedModel(name="first", path=tiny),
        ServedModel(name="second", path=tiny, engine=engine, sampling={"temperature": 0.25}),
    )
    with TestClient(create_app(ServerOptions(models=models)), base_url="http://localhost") as http:

        def asked(path: str) -> Any:
            return http.get(path, params={"model": "second"}).json()

        paths = ("/props", "/tokenizer_info", "/lora-adapters", "/v1/models/second")
        closed = {path: asked(path) for path in paths}
        assert asked("/slots") == []
        assert http.get("/slots", params={"model": "second", "fail_on_no_slot": "1"}).is_success
        settings = closed["/props"]["default_generation_settings"]
        assert settings["n_ctx"] == 200
        assert settings["params"]["temperature"] == 0.25
        assert closed["/props"]["is_sleeping"] is True
        assert http.post("/v1/completions", json={**ASK, "model": "second"}).is_success
        opened = {path: asked(path) for path in paths}
        assert opened["/props"].pop("is_sleeping") is False
        del closed["/props"]["is_sleeping"]
        assert opened["/v1/models/second"].pop("status") == {"value": "loaded"}
        assert closed["/v1/models/second"].pop("status") == {"value": "unloaded"}
        assert opened == closed  # the rest is the same
        assert len(asked("/slots")) == 3
        http.post("/models/unload", json={"model": "second"})
        assert asked("/props") == closed["/props"] | {"is_sleeping": True}


def test_what_a_model_had_when_it_was_open_is_remembered(tiny: Path) -> None:
    with client(tiny) as http:
        opened = http.get("/props").json()
        http.post("/models/unload", json={"model": "tiny"})
        closed = http.get("/props").json()
        assert opened["total_slots"] > 0
        assert closed == opened | {"is_sleeping": True}


def test_a_router_describes_itself(tiny: Path) -> None:
    models = tuple(ServedModel(name=name, path=tiny) for name in ("a", "b"))
    options = ServerOptions(models=models, models_max=5)
    with TestClient(create_app(options), base_url="http://localhost") as http:
        props = http.get("/props").json()
        assert (props["role"], props["max_instances"]) == ("router", 5)
        assert props["default_generation_settings"] == {"n_ctx": 0, "params": {}}
        assert http.get("/props", params={"model": "a"}).json()["model_alias"] == "a"
        assert http.get("/props", params={"model": "c"}).status_code == 404


def test_a_model_whose_file_is_gone_cannot_be_described(tiny: Path, tmp_path: Path) -> None:
    gone = ServedModel(name="gone", path=tmp_path / "gone.gguf")
    options = ServerOptions(models=(ServedModel(name="here", path=tiny), gone))
    with TestClient(create_app(options), base_url="http://localhost") as http:
        for path in ("/props", "/tokenizer_info"):
            answer = http.get(path, params={"model": "gone"})
            assert answer.status_code == 400
            assert "gone.gguf cannot be read: No such file" in answer.text
