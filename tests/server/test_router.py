"""A server of many models: found in a folder, opened on demand, closed to make room."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import PATIENCE, serving
from starlette.testclient import TestClient

from ingot import LLM
from ingot.engine import EngineOptions
from ingot.engine.model.plan import plan_model
from ingot.errors import ConfigError
from ingot.server import ServedModel, ServerOptions, create_app
from ingot.server.gpu_turns import on_free_gpu
from ingot.server.model_folder import find_models
from ingot.server.models_file import ModelsFile
from ingot.server.open_model import open_model
from scripted_gguf import write_scripted_gguf

CHAT = [{"role": "user", "content": "Who are you?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    (made / "deep").mkdir()
    for name in ("a", "b", "deep/c"):
        path = made / f"{name}.gguf"
        write_scripted_gguf(path, {}, otherwise=f"I am {path.stem}.", context=1024)
    for name in ("mmproj-a", "a.mmproj-Q8_0"):
        (made / f"{name}.gguf").write_bytes(b"no model")
    return made


def served(folder: Path) -> list[ServedModel]:
    engine = EngineOptions(threads=1, max_running=2)
    found = find_models(folder)
    return [ServedModel(name=name, path=path, engine=engine) for name, path in found.items()]


@contextmanager
def router(folder: Path, **options: Any) -> Iterator[TestClient]:
    app = create_app(ServerOptions(discover=lambda: served(folder), **options))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def says(client: Any, model: str, **fields: object) -> str:
    answer = client.post("/v1/chat/completions", json={"model": model, "messages": CHAT, **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def states(client: Any) -> dict[str, str]:
    models = client.get("/v1/models").json()["data"]
    return {model["id"]: model["status"]["value"] for model in models}


def test_models_of_a_folder_are_opened_on_demand(folder: Path) -> None:
    with router(folder) as client:
        assert states(client) == dict.fromkeys(("a", "b", "c"), "unloaded")
        assert says(client, "c") == "I am c."
        assert says(client, "a:latest") == "I am a."
        assert states(client) == {"a": "loaded", "b": "unloaded", "c": "loaded"}
        unknown = client.post("/v1/chat/completions", json={"model": "d", "messages": CHAT})
        assert unknown.status_code == 404


def test_a_new_file_is_found_and_a_removed_one_is_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingot.server.catalog._DISCOVER_SECONDS", 0)
    with router(tmp_path) as client:
        assert client.get("/v1/models").json()["data"] == []
        nothing = client.post("/v1/completions", json={"prompt": "a"})
        assert nothing.status_code == 404
        (tmp_path / "new.gguf").write_bytes((folder / "a.gguf").read_bytes())
        assert says(client, "new") == "I am a."
        client.post("/models/unload", json={"model": "new"})
        (tmp_path / "new.gguf").unlink()
        assert states(client) == {}


def test_the_model_that_was_idle_longest_makes_room(folder: Path) -> None:
    with router(folder, models_max=2) as client:
        for model in ("a", "b", "a", "c"):
            assert says(client, model) == f"I am {model}."
        assert states(client) == {"a": "loaded", "b": "unloaded", "c": "loaded"}


def test_room_is_what_models_are_planned_to_take(folder: Path) -> None:
    (first, *_) = served(folder)
    planned = plan_model(first.path, first.engine).total
    for models, kept in ((1.5, 1), (2.5, 2)):
        with router(folder, models_memory=int(planned * models)) as client:
            for model in ("a", "b", "c"):
                assert says(client, model) == f"I am {model}."
            assert list(states(client).values()).count("loaded") == kept


def test_models_take_turns_on_the_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is opened on the GPU with the fewest others, unless its options name one."""
    monkeypatch.setattr("ingot.server.gpu_turns.count_gpus", lambda: 2)
    devices: list[tuple[str, str]] = []

    def opened(model: ServedModel, *rest: Any) -> LLM:
        devices.append((model.name, model.engine.device))
        return open_model(replace(model, engine=replace(model.engine, device="cpu")), *rest)

    monkeypatch.setattr("ingot.server.catalog.open_model", opened)
    models = [
        replace(model, engine=replace(model.engine, device="cuda")) for model in served(folder)
    ]
    fixed = replace(models[0], name="fixed", engine=replace(models[0].engine, device="cuda:1"))
    options = ServerOptions(models=(*models, fixed), models_max=3)
    with TestClient(create_app(options), base_url="http://localhost") as client:
        for name in ("b", "c", "fixed"):  # the first, a, is open; b is closed for "fixed"
            assert says(client, name)
            assert says(client, "a")
        client.post("/models/unload", json={"model": "c"})
        assert says(client, "b")
    expected = [("a", 0), ("b", 1), ("c", 0), ("fixed", 1), ("b", 0)]
    assert devices == [(name, f"cuda:{number}") for name, number in expected]


@pytest.mark.parametrize(
    ("options", "others", "device"),
    [
        ({"device": "cuda"}, [], "cuda:0"),
        ({"device": "cuda"}, [{"device": "cuda:0"}], "cuda:1"),
        ({"device": "cuda"}, [{"device": "auto"}], "cuda:1"),
        ({"device": "cuda"}, [{"device": "cuda", "gpu_split": (1, 1)}], "cuda:2"),
        ({"device": "cuda"}, [{"device": "cuda:1", "gpu_split": (1, 1)}], "cuda:0"),
        ({"device": "cuda"}, [{"device": "cpu"}] * 2, "cuda:0"),
        ({"device": "cuda", "gpu_split": (1, 1)}, [{"device": "cuda:0"}], "cuda"),
        ({"device": "cuda:2"}, [{"device": "cuda:2"}], "cuda:2"),
        ({"device": "auto"}, [{"device": "cuda:0"}], "auto"),
        ({"device": "cpu"}, [], "cpu"),
    ],
)
def test_a_model_is_opened_on_the_gpu_that_the_fewest_use(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    others: list[dict[str, Any]],
    device: str,
) -> None:
    model = ServedModel(name="m", path=Path("m"), engine=EngineOptions(**options))
    used = [EngineOptions(**other) for other in others]
    for count in (0, 1):
        monkeypatch.setattr("ingot.server.gpu_turns.count_gpus", lambda count=count: count)
        assert on_free_gpu(model, used) is model
    monkeypatch.setattr("ingot.server.gpu_turns.count_gpus", lambda: 3)
    assert on_free_gpu(model, used).engine.device == device


def test_a_busy_model_is_not_closed_for_another(folder: Path) -> None:
    with router(folder, models_max=1) as client:
        begun = threading.Event()
        texts: list[str] = []

        def read() -> None:
            body = {"model": "a", "prompt": "x", "max_tokens": 700, "ignore_eos": True}
            with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as sent:
                for line in sent.iter_lines():
                    texts.append(line)
                    begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        begun.wait(PATIENCE)
        assert says(client, "b") == "I am b."  # after the other has ended
        reader.join(PATIENCE)
        assert texts[-2] == "data: [DONE]"
        assert states(client) == {"a": "unloaded", "b": "loaded", "c": "unloaded"}


def test_models_are_loaded_and_unloaded_by_name(folder: Path) -> None:
    with (
        serving(folder / "a.gguf", "--models-dir", folder, "--threads", 1) as process,
        httpx.Client(base_url=process.url, timeout=PATIENCE) as client,
        client.stream("GET", "/models/sse") as stream,
    ):
        lines = (line for line in stream.iter_lines() if line)

        def event() -> tuple[str, str]:
            content = json.loads(next(lines).removeprefix("data: "))
            assert content["event"] == "model_status"
            return content["model"], content["data"]["status"]

        first = {event() for _ in range(3)}
        assert first == {("a", "loaded"), ("b", "unloaded"), ("c", "unloaded")}
        assert client.post("/models/load", json={"model": "b"}).json() == {"success": True}
        assert [event(), event()] == [("b", "loading"), ("b", "loaded")]
        assert states(client)["b"] == "loaded"
        assert client.post("/models/unload", json={"model": "b"}).json() == {"success": True}
        assert event() == ("b", "unloaded")
        assert client.post("/models/load", json={"model": "nothing"}).status_code == 404
        assert "context of 1024 tokens, all that the model allows" in process.logged("a: context")


def test_a_model_in_use_is_not_unloaded(folder: Path) -> None:
    with router(folder) as client:
        body = {"model": "a", "prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}
        codes: list[int] = []
        begun = threading.Event()

        def read() -> None:
            with client.stream("POST", "/v1/completions", json=body) as sent:
                for _ in sent.iter_lines():
                    begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        begun.wait(PATIENCE)
        refused = client.post("/models/unload", json={"model": "a"})
        codes.append(refused.status_code)
        reader.join(PATIENCE)
        codes.append(client.post("/models/unload", json={"model": "a"}).status_code)
        assert codes == [409, 200]
        assert refused.json()["error"]["code"] == "model_busy"


def test_a_model_that_cannot_be_opened_says_so_in_the_list(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(60))
    with router(tmp_path) as client:
        assert client.post("/v1/completions", json={"model": "bad", "prompt": "a"}).is_error
        (model,) = client.get("/v1/models").json()["data"]
        assert model["status"]["failed"] is True
        assert "version" in model["status"]["error"]


def test_a_model_that_was_idle_sleeps_and_wakes(folder: Path) -> None:
    with router(folder, idle_unload=0.01) as client:
        for _ in range(2):
            assert says(client, "a") == "I am a."
            while states(client)["a"] == "loaded":
                pass
            assert states(client)["a"] == "sleeping"


def test_a_file_has_options_of_single_models(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}!")
    file.write_text(
        '[a]\ncontext = 512\ntemperature = 0.25\naliases = ["gpt-4o"]\n'
        'chat_template_file = "t.jinja"\nreasoning_format = "none"\npooling = "last"\n'
        f'[extra]\nmodel = "{folder / "b.gguf"}"\nload = true\ncontext_shift = true\n'
    )
    flags = ("--models-dir", folder, "--models-file", file, "--threads", 1, "--temp", 0.75)
    with (
        serving(folder / "b.gguf", *flags) as process,
        httpx.Client(base_url=process.url, timeout=PATIENCE) as client,
    ):
        assert states(client)["extra"] == "loaded"
        assert says(client, "extra") == "I am b."
        props = client.get("/props", params={"model": "gpt-4o"}).json()
        assert props["model_alias"] == "a"
        assert props["default_generation_settings"]["n_ctx"] == 512
        assert props["default_generation_settings"]["params"]["temperature"] == 0.25
        other = client.get("/props", params={"model": "b"}).json()
        assert other["default_generation_settings"]["params"]["temperature"] == 0.75
        asked = {"model": "a", "messages": CHAT}
        assert client.post("/apply-template", json=asked).json()["prompt"] == "Who are you?!"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "not valid TOML"),
        ("a = 1", "write [NAME]"),
        ("[a]\ncontxt = 1", "did you mean 'context'"),
        ("[a]\nload = 1", "wrong type"),
        ("[a]\npooling = 'sum'", "mean, cls, last"),
        ("[a]\ntemperature = -1", "temperature"),
        ("[a]\nmax_running = 0", "max_running"),
        ("[a]\nchat_template_file = 'none'", "none"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "models.toml"
    file.write_text(text)
    with pytest.raises((ConfigError, OSError)) as error:
        ModelsFile.read(file).apply("a", ServedModel(name="a", path=tmp_path))
    assert said in str(error.value)


def test_an_answer_may_outgrow_the_context(folder: Path) -> None:
    engine = EngineOptions(threads=1, context=64)
    body = {"prompt": "abc", "max_tokens": 100, "ignore_eos": True, "temperature": 0}
    for shift, reason, tokens in ((False, "length", 61), (True, "length", 100)):
        model = ServedModel(name="a", path=folder / "a.gguf", engine=engine, context_shift=shift)
        app = create_app(ServerOptions(models=(model,)))
        with TestClient(app, base_url="http://localhost") as client:
            answer = client.post("/v1/completions", json=body).json()
            assert answer["choices"][0]["finish_reason"] == reason
            assert answer["usage"]["completion_tokens"] == tokens
            kept = client.post("/completion", json={**body, "n_predict": 100, "n_keep": -1})
            assert kept.json()["tokens_predicted"] == tokens
