"""Models that clients have the server download, from a server that speaks the hub's protocol."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import asgi_client
from serving import serving as serving_process

from checkpoints import write_llama
from holding import PATIENCE
from ingot.config import config
from ingot.convert import list_models
from ingot.engine import EngineOptions
from ingot.errors import ConfigError, StoreError
from ingot.server import ServedModel, ServerOptions
from ingot.server.downloads import downloadable
from ingot.store import http as web
from tiny_llama import write_tiny_llama
from unit.store.model_server import HubAndOllama, serving

hub = pytest.importorskip("huggingface_hub", reason="pip install 'ingot-llm[hub]'")
pytest.importorskip("huggingface_hub.constants")

REPO, FILE = "Owner/Tiny-GGUF", "tiny-Q8_0.gguf"
NAME = f"hf:{REPO}/{FILE}"
Talk = Callable[[httpx.AsyncClient], Awaitable[Any]]


class Gate(threading.Event):
    """Holds a file that is being sent after its first bytes, until it is set."""

    def wait(self, _: float | None = None) -> bool:
        return super().wait(PATIENCE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("downloads") / "tiny.gguf")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path) -> Iterator[HubAndOllama]:
    """A hub with one repository, and a store in which nothing is."""
    for variable in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "ingot"))
    monkeypatch.setattr(web, "FIRST_WAIT", 0.0)
    with serving() as server:
        pattern = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(hub.constants, "ENDPOINT", server.url)
        monkeypatch.setattr(hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", pattern)
        monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        server.add_repo(REPO, {FILE: model.read_bytes()})
        config.cache_clear()
        yield server
    config.cache_clear()


def discover() -> list[ServedModel]:
    engine = EngineOptions(threads=1)
    return [ServedModel(name=each.name, path=each.path, engine=engine) for each in list_models()]


def talk(model: Path, said: Talk, *, allow: bool = True, deletes: bool = False) -> Any:
    async def run() -> Any:
        options = {"discover": discover, "allow_downloads": allow, "allow_deletes": deletes}
        async with asgi_client(model, **options) as client, asyncio.timeout(PATIENCE):
            return await said(client)

    return asyncio.run(run())


async def downloads(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/models/downloads")).json()
    return found


async def until_ended(client: httpx.AsyncClient) -> None:
    while (await downloads(client))["data"]:
        await asyncio.sleep(0.01)


def generate(client: httpx.AsyncClient, name: str) -> Awaitable[httpx.Response]:
    body = {"model": name, "prompt": "?", "raw": True, "stream": False}
    return client.post("/api/generate", json={**body, "options": {"num_predict": 2}})


def delete(client: httpx.AsyncClient, name: str) -> Awaitable[httpx.Response]:
    return client.request("DELETE", "/api/delete", json={"model": name})


@pytest.mark.usefixtures("remote")
def test_a_model_is_deleted(model: Path, tmp_path: Path) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        await client.post("/api/pull", json={"model": f"hf:{REPO}", "stream": False})
        files = {path for path in tmp_path.rglob("*") if path.is_file()}
        assert (await generate(client, NAME)).status_code == 200  # it is open, and not in use
        assert (await delete(client, NAME)).status_code == 200
        assert not any(path.stat().st_size > 10_000 for path in files if path.exists())
        assert [each["id"] for each in (await client.get("/v1/models")).json()["data"]] == ["tiny"]
        assert (await delete(client, NAME)).status_code == 404
        mine = await delete(client, "tiny")
        assert (mine.status_code, "not a model of the store" in mine.text) == (403, True)
        assert model.exists()

    talk(model, said, deletes=True)


@pytest.mark.usefixtures("remote")
def test_nothing_is_deleted_unless_it_is_allowed(model: Path) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        await client.post("/api/pull", json={"model": f"hf:{REPO}", "stream": False})
        refused = await delete(client, NAME)
        assert (refused.status_code, "--allow-deletes" in refused.text) == (403, True)
        assert (await generate(client, NAME)).status_code == 200

    talk(model, said)


@pytest.mark.usefixtures("remote")
def test_a_model_is_downloaded_and_served(model: Path) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        before = [each["id"] for each in (await client.get("/v1/models")).json()["data"]]
        assert before == ["tiny"]
        assert (await downloads(client)) == {"allowed": True, "data": []}
        answer = await client.post("/models/download", json={"model": f"hf:{REPO}"})
        assert answer.json() == {"success": True}
        await until_ended(client)
        after = [each["id"] for each in (await client.get("/v1/models")).json()["data"]]
        assert after == ["tiny", NAME]
        for name in (NAME, f"hf:{REPO}"):  # as it is listed, and as it was asked for
            found = await generate(client, name)
            assert found.status_code == 200, found.text
            assert found.json()["eval_count"] == 2

    talk(model, said)


def test_ollamas_clients_see_how_far_it_is(model: Path, remote: HubAndOllama) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        name = f"hf.co/{REPO}/{FILE}"
        first = await client.post("/api/pull", json={"model": name})
        assert first.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in first.text.splitlines()]
        assert lines[0] == {"status": "pulling manifest"}
        assert lines[-1] == {"status": "success"}
        size = model.stat().st_size
        assert {"status": FILE, "total": size, "completed": size} in [
            {**line, "status": FILE} for line in lines if FILE in line.get("status", "")
        ]
        asked = len(remote.asked)
        again = await client.post("/api/pull", json={"model": name, "stream": False})
        assert again.json() == {"status": "success"}
        assert len(remote.asked) == asked, "it is here already"
        assert (await generate(client, name)).status_code == 200

    talk(model, said)


@pytest.mark.usefixtures("remote")
def test_what_cannot_be_found_is_an_error(model: Path) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        body = {"model": "hf:Owner/Nothing"}
        streamed = (await client.post("/api/pull", json=body)).text.splitlines()
        assert "Owner/Nothing" in json.loads(streamed[-1])["error"]
        whole = await client.post("/api/pull", json={**body, "stream": False})
        assert whole.status_code == 502
        assert "Owner/Nothing" in whole.json()["error"]
        assert (await downloads(client))["data"] == []

    talk(model, said)


def test_what_was_downloaded_and_does_not_run_is_an_error(
    model: Path, remote: HubAndOllama
) -> None:
    whisper = b'{"architectures": ["WhisperForConditionalGeneration"]}'
    files = {"config.json": whisper, "model.safetensors": b"w", "tokenizer.json": b"{}"}
    remote.add_repo("Owner/Whisper", files)

    async def said(client: httpx.AsyncClient) -> None:
        body = {"model": "hf:Owner/Whisper", "stream": False}
        answer = await client.post("/api/pull", json=body)
        assert answer.status_code == 502
        assert "it is no model that Ingot runs" in answer.json()["error"]

    talk(model, said)


def test_a_download_is_cancelled_and_continued(model: Path, remote: HubAndOllama) -> None:
    remote.away.pace = Gate()

    async def said(client: httpx.AsyncClient) -> None:
        body = {"model": NAME}
        for _ in range(2):  # the second request joins the first
            assert (await client.post("/models/download", json=body)).status_code == 200
        (running,) = (await downloads(client))["data"]
        assert running["model"] == NAME
        assert running["data"]["status"] in ("waiting", "downloading")
        assert (await client.post("/models/download/cancel", json=body)).status_code == 200
        await until_ended(client)
        assert (await client.post("/models/download/cancel", json=body)).status_code == 404
        assert NAME not in (await client.get("/v1/models")).text
        remote.away.pace.set()
        await client.post("/models/download", json=body)
        await until_ended(client)
        assert NAME in (await client.get("/v1/models")).text

    talk(model, said)


def test_a_client_that_leaves_ends_its_download_only(model: Path, remote: HubAndOllama) -> None:
    remote.away.pace = Gate()

    async def started(client: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
        task = asyncio.create_task(client.post("/api/pull", json={"model": NAME}))
        while not (await downloads(client))["data"]:
            await asyncio.sleep(0.01)
        return task

    async def said(client: httpx.AsyncClient) -> None:
        alone = await started(client)
        alone.cancel()
        await until_ended(client)
        first = await started(client)
        await client.post("/models/download", json={"model": NAME})
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (await downloads(client))["data"], "the other client still wants it"
        remote.away.pace.set()
        await until_ended(client)
        assert NAME in (await client.get("/v1/models")).text

    talk(model, said)


def test_a_server_downloads_nothing_unless_it_is_allowed(model: Path) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        assert (await downloads(client)) == {"allowed": False, "data": []}
        for path in ("/models/download", "/models/download/cancel", "/api/pull"):
            answer = await client.post(path, json={"model": NAME})
            assert answer.status_code == 403, path
            assert "--allow-downloads" in answer.text

    talk(model, said, allow=False)
    with pytest.raises(ConfigError, match="discover"):
        ServerOptions(models=(ServedModel(name="a", path=model),), allow_downloads=True)


def test_only_registries_are_asked(model: Path) -> None:
    names = [
        "https://example.com/model.gguf",
        "http://127.0.0.1:8080/model.gguf",
        "/etc/passwd",
        "../model.gguf",
        "ollama:10.0.0.1/library/x",
        "hf:Owner",
        "",
    ]

    async def said(client: httpx.AsyncClient) -> None:
        for name in names:
            with pytest.raises(StoreError):
                downloadable(name)
            for path in ("/models/download", "/api/pull"):
                answer = await client.post(path, json={"model": name})
                assert answer.status_code == 400, answer.text

    talk(model, said)


def test_names_may_be_written_as_ollama_does() -> None:
    assert downloadable("qwen3:0.6b") == "ollama:qwen3:0.6b"
    assert downloadable("qwen3") == "ollama:qwen3:latest"
    assert downloadable("hf.co/Owner/Repo:Q4_0") == "hf:Owner/Repo:Q4_0"
    assert downloadable("Owner/Repo") == "hf:Owner/Repo"
    assert downloadable("default") == "default"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (f"hf:{REPO}:Q8_0", "tiny-Q8_0"),
        ("Owner/Saved", "Saved"),  # a checkpoint
        ("mine=hf:Owner/Saved:q8_0", "mine"),
    ],
)
def test_a_server_process_opens_a_name_of_the_hub(
    given: str, name: str, remote: HubAndOllama, tmp_path: Path
) -> None:
    folder = write_llama(tmp_path / "saved")
    remote.add_repo("Owner/Saved", {path.name: path.read_bytes() for path in folder.iterdir()})
    hub_of_process = {"HF_ENDPOINT": remote.url, "HF_HUB_OFFLINE": ""}
    with serving_process(given, "--threads", 1, env=hub_of_process) as served:
        assert any("downloading" in line for line in served.log)
        models = httpx.get(f"{served.url}/v1/models", timeout=PATIENCE).json()["data"]
        assert [model["id"] for model in models] == [name]
        body = {"model": name, "prompt": "ABC", "max_tokens": 3, "ignore_eos": True}
        done = httpx.post(f"{served.url}/v1/completions", json=body, timeout=PATIENCE)
        assert done.status_code == 200, done.text
        assert done.json()["usage"]["completion_tokens"] == 3
    asked = len(remote.asked)
    with serving_process(given, "--threads", 1, env=hub_of_process | {"HF_HUB_OFFLINE": "1"}):
        assert len(remote.asked) == asked
