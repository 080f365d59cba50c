"""LoRA adapters of a server: llama-server's endpoints and field, adapters named as models."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from in_process import asgi_client

from ingot import LLM
from ingot.cli.shared.adapter_flags import AdapterFlags
from ingot.engine import EngineOptions
from ingot.errors import ConfigError
from tiny_adapters import write_adapter, write_random_adapter
from tiny_llama import write_tiny_llama

PROMPT = [256, *range(40)]
GREEDY = {"temperature": 0, "ignore_eos": True, "n_predict": 8}
Talk = Callable[[httpx.AsyncClient], Awaitable[Any]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("served")
    return {
        "model": write_tiny_llama(folder / "model.gguf"),
        "one": write_random_adapter(folder / "one.gguf", rank=3, seed=1),
        "two": write_random_adapter(folder / "two.gguf", rank=6, seed=2),
    }


@pytest.fixture(scope="module")
def texts(files: dict[str, Path]) -> dict[str, str]:
    """What the model writes, by adapter."""
    given = {name: files[name] for name in ("one", "two")}
    choices: dict[str, Any] = {
        "plain": {},
        "one": "one",
        "half": {"one": 0.5},
        "two": "two",
        "both": {"one": 0.5, "two": 1.0},
    }
    fields = {"temperature": 0, "ignore_eos": True, "max_tokens": 8}
    with LLM(files["model"], threads=1, adapters=given) as llm:
        found = {
            name: llm.generate(PROMPT, adapter=choice, **fields).text
            for name, choice in choices.items()
        }
    assert len(set(found.values())) == len(found)
    return found


def talk(
    files: dict[str, Path],
    said: Talk,
    scales: dict[str, float] | None = None,
    **options: object,
) -> Any:
    engine = EngineOptions(
        threads=1,
        adapters={name: files[name] for name in ("one", "two")},
        adapter_scales=scales,
    )

    async def run() -> Any:
        async with asgi_client(files["model"], {"engine": engine}, **options) as client:
            return await said(client)

    return asyncio.run(run())


async def complete(client: httpx.AsyncClient, **body: Any) -> str:
    answer = await client.post("/completion", json={"prompt": PROMPT, **GREEDY, **body})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["content"])


def test_the_list_and_the_scales(files: dict[str, Path], texts: dict[str, str]) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        listed = (await client.get("/lora-adapters")).json()
        assert listed == [
            {
                "id": number,
                "name": name,
                "path": str(files[name]),
                "scale": 1.0 if name == "one" else 0.0,
                "task_name": "",
                "prompt_prefix": "",
            }
            for number, name in enumerate(("one", "two"))
        ]
        assert await complete(client) == texts["one"]
        scales = [{"id": 1, "scale": 1.0}, {"id": 0, "scale": 0.5}]
        answer = await client.post("/lora-adapters", json=scales)
        assert answer.json() == {"success": True}
        assert [each["scale"] for each in (await client.get("/lora-adapters")).json()] == [0.5, 1]
        assert await complete(client) == texts["both"]
        await client.post("/lora-adapters", json=[])
        assert await complete(client) == texts["plain"]

    talk(files, said, {"one": 1.0})


def test_the_lora_field(files: dict[str, Path], texts: dict[str, str]) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        assert await complete(client, lora=[{"id": 1, "scale": 1.0}]) == texts["two"]
        assert await complete(client, lora=[{"id": 0, "scale": 0.5}]) == texts["half"]
        assert await complete(client, lora=[]) == texts["plain"]
        assert await complete(client) == texts["one"]
        body = {"prompt": PROMPT, "lora": [{"id": 0, "scale": 0.5}], **GREEDY, "max_tokens": 8}
        answer = (await client.post("/v1/completions", json=body)).json()
        assert answer["choices"][0]["text"] == texts["half"]
        wrong = await client.post("/completion", json=body | {"lora": [{"id": 2, "scale": 1}]})
        assert wrong.status_code == 400
        assert "no adapter 2; 2 are loaded" in wrong.json()["error"]["message"]
        for lora in ({"id": 0}, [{"id": -1, "scale": 1}], [{"id": 0, "scale": "1"}]):
            answer = await client.post("/completion", json=body | {"lora": lora})
            assert answer.status_code == 400

    talk(files, said, {"one": 1.0})


def test_the_settings_of_a_completion_have_its_adapters(files: dict[str, Path]) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        async def settings(**body: Any) -> Any:
            asked = {"prompt": PROMPT, **GREEDY, **body}
            answer = (await client.post("/completion", json=asked)).json()
            return answer["generation_settings"]["lora"]

        half, whole = {"id": 0, "scale": 0.5}, {"id": 1, "scale": 1.0}
        assert await settings() == [{"id": 0, "scale": 1.0}]
        assert await settings(lora=[whole, half]) == [half, whole]
        assert await settings(lora=[half, whole | {"scale": 0.0}]) == [half]
        assert await settings(model="two") == [whole]
        assert await settings(lora=[]) == []

    talk(files, said, {"one": 1.0})


def test_an_adapter_as_the_model(files: dict[str, Path], texts: dict[str, str]) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        for name in ("one", "two"):
            body = {"model": name, "prompt": PROMPT, "max_tokens": 8, **GREEDY}
            answer = (await client.post("/v1/completions", json=body)).json()
            assert (answer["model"], answer["choices"][0]["text"]) == (name, texts[name])
        assert await complete(client, model="tiny") == texts["plain"]
        assert await complete(client, model="one") == texts["one"]
        assert await complete(client, model="one", lora=[{"id": 1, "scale": 1}]) == texts["two"]
        chats = []
        for name in ("tiny", "one"):
            body = {
                "model": name,
                "messages": [{"role": "user", "content": "hello"}],
                "max_tokens": 8,
                "temperature": 0,
            }
            chats.append((await client.post("/v1/chat/completions", json=body)).json())
        assert [chat["model"] for chat in chats] == ["tiny", "one"]
        first, second = (chat["choices"][0]["message"]["content"] for chat in chats)
        assert first != second
        models = (await client.get("/v1/models")).json()["data"]
        assert [(model["id"], model["parent"]) for model in models] == [
            ("tiny", None),
            ("one", "tiny"),
            ("two", "tiny"),
        ]
        assert (await client.get("/v1/models/two")).json()["parent"] == "tiny"

    talk(files, said)


def test_prompt_logprobs_are_those_of_the_adapter(files: dict[str, Path]) -> None:
    async def said(client: httpx.AsyncClient) -> list[Any]:
        body = {"prompt": PROMPT, "max_tokens": 0, "echo": True, "logprobs": 1}
        answers = [
            (await client.post("/v1/completions", json=body | {"model": name})).json()
            for name in ("tiny", "one")
        ]
        return [answer["choices"][0]["logprobs"]["token_logprobs"] for answer in answers]

    plain, adapted = talk(files, said)
    assert len(plain) == len(adapted)
    assert plain != adapted


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a"}),
        ("/embedding", {"content": "a"}),
        ("/pooling", {"input": "a"}),
        ("/score", {"text_1": "a", "text_2": "b"}),
        ("/rerank", {"query": "a", "documents": ["b"]}),
        ("/api/embed", {"input": "a"}),
        ("/api/embeddings", {"prompt": "a"}),
    ],
)
def test_no_embedding_pretends_to_be_that_of_an_adapter(
    files: dict[str, Path], path: str, body: dict[str, Any]
) -> None:
    async def said(client: httpx.AsyncClient) -> None:
        refused = await client.post(path, json={"model": "one", **body})
        assert refused.status_code == 400, refused.text
        assert "'one' is a LoRA adapter" in refused.text
        if path != "/rerank":  # this model is not a reranker
            plain = await client.post(path, json={"model": "tiny", **body})
            assert plain.status_code == 200, plain.text

    talk(files, said)


async def names(client: httpx.AsyncClient) -> list[str]:
    return [model["id"] for model in (await client.get("/v1/models")).json()["data"]]


def test_adapters_are_loaded_and_unloaded_by_clients(
    files: dict[str, Path], texts: dict[str, str], tmp_path: Path
) -> None:
    """vLLM's endpoints; a model that is opened again has the adapters that it had."""
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(files["two"].read_bytes())

    async def said(client: httpx.AsyncClient) -> None:
        async def load(name: str, path: str) -> httpx.Response:
            body = {"lora_name": name, "lora_path": path}
            return await client.post("/v1/load_lora_adapter", json=body)

        async def unload(name: str) -> httpx.Response:
            return await client.post("/v1/unload_lora_adapter", json={"lora_name": name})

        loaded = await load("mine", "mine.gguf")
        assert (loaded.status_code, loaded.headers["content-type"].partition(";")[0]) == (
            200,
            "text/plain",
        )
        assert loaded.text == "Success: LoRA adapter 'mine' added successfully."
        assert (await load("absolute", str(mine))).status_code == 200
        assert await names(client) == ["tiny", "one", "two", "mine", "absolute"]
        assert await complete(client) == texts["one"]
        assert await complete(client, model="mine") == texts["two"]
        removed = await unload("one")
        assert removed.text == "Success: LoRA adapter 'one' removed successfully."
        assert await complete(client) == texts["plain"]  # `one` was used by default

        assert (await client.post("/models/unload", json={"model": "tiny"})).status_code == 200
        assert await names(client) == ["tiny", "two", "mine", "absolute"]
        assert (await unload("absolute")).status_code == 200  # of a closed model
        assert await complete(client, model="mine") == texts["two"]
        assert await complete(client) == texts["plain"]
        assert await names(client) == ["tiny", "two", "mine"]

        def refused(answer: httpx.Response) -> tuple[int, str, str]:
            error = answer.json()["error"]
            assert error["code"] == answer.status_code
            return error["code"], error["type"], error["message"]

        for name in ("mine", "two", "tiny"):
            code, kind, message = refused(await load(name, "mine.gguf"))
            assert (code, kind) == (400, "InvalidUserInput")
            assert message == f"The lora adapter '{name}' has already been loaded."
        for body in ({"lora_name": "x"}, {"lora_path": "mine.gguf"}):
            answer = await client.post("/v1/load_lora_adapter", json=body)
            message = "Both 'lora_name' and 'lora_path' must be provided."
            assert refused(answer) == (400, "InvalidUserInput", message)
        gone = (404, "NotFoundError", "The lora adapter 'one' cannot be found.")
        assert refused(await unload("one")) == gone
        assert refused(await unload(""))[0] == 400
        assert refused(await load("x", "none.gguf"))[:2] == (404, "NotFoundError")
        assert refused(await load("x", "a\0b"))[:2] == (404, "NotFoundError")
        assert "cannot be read" in refused(await load("x", "text.gguf"))[2]
        assert await names(client) == ["tiny", "two", "mine"]

    (tmp_path / "text.gguf").write_text("no adapter")
    talk(files, said, {"one": 1.0}, adapters_folder=tmp_path)


def test_requests_wait_for_no_adapter_that_is_loaded_or_unloaded(
    files: dict[str, Path], texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading takes seconds on a GPU, and whoever unloads another adapter waits for it."""
    begun, go_on = Event(), Event()

    def load(self: LLM, name: str, path: Path) -> None:  # noqa: ARG001
        begun.set()
        go_on.wait(60)

    async def said(client: httpx.AsyncClient) -> None:
        body = {"lora_name": "slow", "lora_path": files["two"].name}
        loading = asyncio.create_task(client.post("/v1/load_lora_adapter", json=body))
        await asyncio.to_thread(begun.wait, 60)
        name = {"lora_name": "one"}
        unloading = asyncio.create_task(client.post("/v1/unload_lora_adapter", json=name))
        for _ in range(20):  # until it waits
            await asyncio.sleep(0.01)
        try:
            assert await asyncio.wait_for(complete(client, model="two"), 30) == texts["two"]
            assert not loading.done()
        finally:
            go_on.set()
        assert [(await done).status_code for done in (loading, unloading)] == [200, 200]

    monkeypatch.setattr(LLM, "add_adapter", load)
    talk(files, said, adapters_folder=files["two"].parent)


def test_only_adapters_of_the_folder_are_loaded(files: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "allowed"
    folder.mkdir()
    (tmp_path / "allowed-not").mkdir()
    outside = tmp_path / "allowed-not" / "two.gguf"
    outside.write_bytes(files["two"].read_bytes())
    (folder / "link.gguf").symlink_to(outside)

    async def outside_said(client: httpx.AsyncClient) -> None:
        for path in ("../allowed-not/two.gguf", str(outside), "link.gguf", "/etc/passwd"):
            body = {"lora_name": "x", "lora_path": path}
            answer = await client.post("/v1/load_lora_adapter", json=body)
            assert answer.status_code == 400, answer.text
            assert "is not in the folder" in answer.json()["error"]["message"]
        assert await names(client) == ["tiny", "one", "two"]

    async def off_said(client: httpx.AsyncClient) -> None:
        body = {"lora_name": "one", "lora_path": str(files["two"])}
        for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            answer = await client.post(path, json=body)
            assert answer.status_code == 403
            assert "--allow-adapter-loading" in answer.json()["error"]["message"]
        assert await names(client) == ["tiny", "one", "two"]

    talk(files, outside_said, adapters_folder=folder)
    talk(files, off_said)


def test_options_of_the_command_line(tmp_path: Path) -> None:
    assert AdapterFlags().fields() == {"adapters": None, "adapter_scales": None}
    flags = AdapterFlags(lora=["a.gguf", "b=x/c.gguf"], lora_scaled=["d=e.gguf:0.25", "f:-1"])
    assert flags.fields() == {
        "adapters": {
            "a": Path("a.gguf"),
            "b": Path("x/c.gguf"),
            "d": Path("e.gguf"),
            "f": Path("f"),
        },
        "adapter_scales": {"a": 1.0, "b": 1.0, "d": 0.25, "f": -1.0},
    }
    unused = AdapterFlags(lora=["a.gguf"], lora_init_without_apply=True)
    assert unused.fields()["adapter_scales"] == {}
    odd = write_adapter(tmp_path / "k=v.gguf", {})
    assert AdapterFlags(lora=[str(odd)]).fields()["adapters"] == {"k=v": odd}
    for wrong in (
        AdapterFlags(lora=["a.gguf", "x/a.gguf"]),
        AdapterFlags(lora=["=a.gguf"]),
        AdapterFlags(lora_scaled=["a.gguf"]),
        AdapterFlags(lora_scaled=["a.gguf:x"]),
    ):
        with pytest.raises(ConfigError):
            wrong.fields()
