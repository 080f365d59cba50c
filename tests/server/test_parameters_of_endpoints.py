"""Endpoints other than those that write texts: nothing that a client asks for is silently ignored.

docs/server.md has a table of the parameters that they take; it is compared with the code.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from scripted import Ask, scripted_model, scripted_server
from starlette.testclient import TestClient

from ingot import LLM
from ingot.server import ServedModel, ServerOptions, create_app
from ingot.server.anthropic.messages_body import CountBody, MessagesBody
from ingot.server.llama.completion import CompletionBody, InfillBody
from ingot.server.llama.embedding import EmbeddingBody
from ingot.server.llama.rerank import RerankBody
from ingot.server.llama.tokenize import DetokenizeBody, TokenizeBody
from ingot.server.ollama.embed import EmbedBody, EmbeddingsBody
from ingot.server.ollama.models import ShowBody
from ingot.server.ollama.store import PullBody
from ingot.server.openai.chat_body import ChatBody
from ingot.server.openai.responses_body import ResponsesBody
from ingot.server.prompt_tokens import first_tokens
from ingot.server.vllm.pooling import PoolingBody
from ingot.server.vllm.score import ScoreBody
from models.tiny_models import Fixture
from tiny_llama import write_tiny_llama

Served = Callable[[Ask], Any]
CHAT = "/v1/chat/completions"
TALK: dict[str, Any] = {"messages": [{"role": "user", "content": "?"}]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_model(tmp_path_factory.mktemp("endpoints"), "qwen2_5")


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[Served]:
    with scripted_server(model) as server:
        yield server


# The type of their bodies, and a body.
OTHERS: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "/infill": (InfillBody, {"input_prefix": "a", "input_suffix": "b"}),
    "/apply-template": (ChatBody, TALK),
    f"{CHAT}/input_tokens": (ChatBody, TALK),
    "/v1/responses/input_tokens": (ResponsesBody, {"input": "?"}),
    "/v1/messages/count_tokens": (CountBody, TALK),
    "/tokenize": (TokenizeBody, {"content": "a"}),
    "/detokenize": (DetokenizeBody, {"tokens": [97]}),
    "/embedding": (EmbeddingBody, {"content": "a"}),
    "/rerank": (RerankBody, {"query": "a", "documents": ["b"]}),
    "/score": (ScoreBody, {"text_1": "a", "text_2": "b"}),
    "/pooling": (PoolingBody, {"input": "a"}),
    "/api/embed": (EmbedBody, {"model": "tiny", "input": "a"}),
    "/api/embeddings": (EmbeddingsBody, {"model": "tiny", "prompt": "a"}),
    "/api/show": (ShowBody, {"model": "tiny"}),
    "/api/pull": (PullBody, {"model": "tiny", "stream": False}),
}
# What can be changed with these says only in the log what was ignored.
LOGGED: dict[str, dict[str, Any]] = {
    "/api/delete": {"model": "none"},
    "/models/load": {"model": "none"},
    "/models/unload": {"model": "none"},
    "/models/download": {"model": "none"},
    "/models/download/cancel": {"model": "none"},
    "/v1/batches": {"input_file_id": "none", "endpoint": CHAT},
    "/v1/messages/batches": {"requests": [{"custom_id": "1", "params": {}}]},
    "/mcp/call": {"server": "none", "tool": "none"},
    "/slots/0?action=erase": {},
    "/v1/load_lora_adapter": {"lora_name": "a", "lora_path": "a"},
    "/v1/unload_lora_adapter": {"lora_name": "a"},
}


def send(served: Served, where: str, body: dict[str, Any]) -> httpx.Response:
    method = "DELETE" if where == "/api/delete" else "POST"
    answer: httpx.Response = served(lambda client: client.request(method, where, json=body))
    return answer


@pytest.mark.parametrize("where", OTHERS)
def test_endpoints_that_generate_nothing_warn_and_refuse(
    served: Served, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = OTHERS[where][1]
    if where in ("/infill", "/rerank"):  # this model can do neither
        assert send(served, where, {**body, "frobnicate": 1}).status_code == 400
    else:
        answer = send(served, where, {**body, "frobnicate": 1})
        assert answer.status_code == 200, answer.text
        told = answer.json() if where != "/embedding" else {"warnings": ["'frobnicate'"]}  # a list
        assert "'frobnicate'" in told["warnings"][0]
        plain = send(served, where, body)
        assert plain.status_code == 200, plain.text
        assert "warnings" not in plain.json()
    assert "ignored=frobnicate" in capsys.readouterr().err
    refused = send(served, where, {**body, "bad_words": ["x"]})
    assert refused.status_code == 400
    assert "bad_words" in refused.text


def test_a_reranker_warns(tmp_path: Path) -> None:
    body = {"query": "t7", "documents": ["t9 t8"], "frobnicate": 1}
    with scripted_server(Fixture.load("bert-rank").write(tmp_path / "rank.gguf")) as served:
        assert "frobnicate" in send(served, "/rerank", body).json()["warnings"][0]
        plain = send(served, "/rerank", {**body, "documents": None, "texts": ["t9"]})
        assert [set(entry) for entry in plain.json()] == [{"index", "score"}]


def test_no_endpoint_ignores_parameters(model: Path) -> None:
    options = ServerOptions(
        models=(ServedModel(name="tiny", path=model),),
        discover=tuple,
        strict_parameters=True,
        allow_downloads=True,
        allow_deletes=True,
    )
    app = create_app(options)
    writing = {
        CHAT: TALK,
        "/v1/completions": {"prompt": "?"},
        "/v1/responses": {"input": "?"},
        "/v1/messages": {**TALK, "max_tokens": 1},
        "/completion": {"prompt": "?"},
        "/v1/embeddings": {"input": "?"},
        "/api/chat": {"model": "tiny"},
        "/api/generate": {"model": "tiny"},
    }
    asked = {**writing, **LOGGED, **{where: body for where, (_, body) in OTHERS.items()}}
    described = {
        where: method["requestBody"]["content"]
        for where, methods in app.openapi()["paths"].items()
        for method in methods.values()
        if "requestBody" in method
    }
    named = {where.replace("0?action=erase", "{id_slot}") for where in asked}
    known = {where for where, content in described.items() if "application/json" in content}
    assert known == {*named, "/lora-adapters"}
    with TestClient(app, base_url="http://localhost") as client:
        for where, body in asked.items():
            method = "DELETE" if where == "/api/delete" else "POST"
            answer = client.request(method, where, json={**body, "frobnicate": 1})
            assert answer.status_code == 400, (where, answer.text)
            assert "'frobnicate' is not a parameter" in answer.text, where
        scales = [{"id": 0, "scale": 1.0, "frobnicate": 1}]
        assert "'frobnicate'" in client.post("/lora-adapters", json=scales).text


def test_whole_bodies_can_be_counted(model: Path) -> None:
    """Clients send the body of the request that they mean to send, whatever it has."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = {
        **TALK,
        "max_tokens": 40,
        "stream": True,
        "n": 2,
        "tools": tools,
        "logprobs": True,
        "seed": 1,
    }
    responses = {"input": "?", "max_output_tokens": 40, "stream": True, "store": False}
    message = {
        **TALK,
        "max_tokens": 40,
        "stream": True,
        "temperature": 0.5,
        "stop_sequences": ["x"],
        "metadata": {"user_id": "a"},
        "top_k": 3,
        "thread": {"type": "create"},
    }
    with scripted_server(model, strict_parameters=True, max_tokens=8) as served:
        for where, body in (
            (f"{CHAT}/input_tokens", chat),
            ("/apply-template", chat),
            ("/v1/responses/input_tokens", responses),
            ("/v1/messages/count_tokens", message),
        ):
            answer = send(served, where, body)
            assert answer.status_code == 200, (where, answer.text)
        held = send(served, "/v1/messages", {**message, "stream": False, "max_tokens": 8}).json()
        more = {"type": "continue", "previous_message_id": held["id"]}
        longer = send(served, "/v1/messages/count_tokens", {**message, "thread": more}).json()
        assert (
            longer["input_tokens"]
            > send(served, "/v1/messages/count_tokens", message).json()["input_tokens"]
        )


TEXT = "one two three four five"


def test_texts_are_cut_to_the_tokens_that_are_asked_for(served: Served, model: Path) -> None:
    with LLM(model, threads=1) as llm:
        ids = llm.tokenize(TEXT)
        short = llm.embed([ids[:6]])[0].tolist()
    cut = {"input": TEXT, "truncate_prompt_tokens": 6}
    answer = send(served, "/v1/embeddings", cut).json()
    assert answer["usage"]["prompt_tokens"] == 6
    assert answer["data"][0]["embedding"] == pytest.approx(short, abs=1e-6)
    pooled = send(served, "/pooling", cut).json()
    assert pooled["data"][0]["data"] == pytest.approx(short, abs=1e-6)
    scored = {"text_1": TEXT, "text_2": TEXT[:5], "truncate_prompt_tokens": 6}
    assert send(served, "/score", scored).json()["data"][0]["score"] == pytest.approx(1, abs=1e-5)
    long = {"input": "a" * 5000}
    assert send(served, "/v1/embeddings", long).status_code == 400
    fits = send(served, "/v1/embeddings", {**long, "truncate_prompt_tokens": -1}).json()
    assert fits["usage"]["prompt_tokens"] == 4096
    for wrong in (0, -2, 5000, "x"):
        answer = send(served, "/v1/embeddings", {**cut, "truncate_prompt_tokens": wrong})
        assert answer.status_code == 400
        assert "truncate_prompt_tokens" in answer.text


def test_a_text_that_is_cut_still_ends_with_eos(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.add_eos_token": True, "llama.context_length": 64}
    path = write_tiny_llama(tmp_path / "eos.gguf", keys=keys)
    with LLM(path, threads=1) as llm:
        ids = llm.tokenize(TEXT)
        assert ids[-1] == llm.tokenizer.eos_id
        expected = llm.embed([[*ids[:5], ids[-1]]])[0].tolist()
        assert first_tokens(llm, TEXT, 1) == [ids[-1]]
    with scripted_server(path) as served:
        cut = {"input": TEXT, "truncate_prompt_tokens": 6}
        answer = send(served, "/v1/embeddings", cut).json()
        assert answer["data"][0]["embedding"] == pytest.approx(expected, abs=1e-6)
        long = {"model": "tiny", "input": "a" * 100}
        assert send(served, "/api/embed", long).json()["prompt_eval_count"] == 64


def test_vectors_may_be_shorter(served: Served) -> None:
    pooled = send(served, "/pooling", {"input": "a", "dimensions": 4}).json()
    assert len(pooled["data"][0]["data"]) == 4


def test_conversations_and_prompts_are_cut_to_what_fits(served: Served) -> None:
    said = [{"role": "user", "content": "a" * 5000}]
    prompt = {"prompt": "a" * 5000}
    for where, body in ((CHAT, {"messages": said}), ("/v1/completions", prompt)):
        asked = {**body, "max_tokens": 4}
        assert send(served, where, asked).status_code == 400
        answer = send(served, where, {**asked, "truncate_prompt_tokens": -1})
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] == 4092
        assert send(served, where, {**asked, "truncate_prompt_tokens": 5000}).status_code == 400


def test_pairs_are_cut(tmp_path: Path) -> None:
    """The longer text loses its end, so a long document is read as its beginning."""
    long = "t9 " * 300
    with scripted_server(Fixture.load("bert-rank").write(tmp_path / "rank.gguf")) as served:
        body: dict[str, Any] = {"query": "t7", "documents": [long]}
        assert send(served, "/rerank", body).status_code == 400
        fits = send(served, "/rerank", {**body, "truncate_prompt_tokens": -1})
        assert fits.status_code == 200, fits.text
        cut = send(served, "/rerank", {**body, "truncate_prompt_tokens": 13}).json()
        assert cut["usage"]["prompt_tokens"] == 13  # BOS, and four for each word
        short = send(served, "/rerank", {"query": "t7", "documents": ["t9 t9"]}).json()
        assert cut["results"] == short["results"]
        pair = {"text_1": "t7", "text_2": long, "truncate_prompt_tokens": 13}
        scores = [
            send(served, "/score", asked).json()["data"]
            for asked in (pair, {"text_1": "t7", "text_2": "t9 t9"})
        ]
        assert scores[0] == scores[1]
        assert send(served, "/rerank", {**body, "truncate_prompt_tokens": 2}).status_code == 400


def test_a_conversation_is_tokenized_as_its_template_writes_it(served: Served) -> None:
    begun = [*TALK["messages"], {"role": "assistant", "content": "So"}]
    plain = send(served, "/tokenize", {"messages": begun}).json()["count"]
    new = send(served, "/tokenize", {"messages": begun, "continue_final_message": False}).json()
    assert new["count"] > plain
    wrong = {"messages": begun, "chat_template_kwargs": {"messages": []}}
    assert send(served, "/tokenize", wrong).status_code == 400


def test_the_table_of_endpoints_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    section = page.split("### Parameters", 1)[1].split("\n### ", 1)[0]
    rows = section.split("\n| endpoint |")[1].splitlines()[2:]
    bodies = {where: body for where, (body, _) in OTHERS.items()}
    like = {CHAT: ChatBody, "/v1/responses": ResponsesBody, "/completion": CompletionBody}
    like |= {"/v1/messages": MessagesBody}
    found: set[str] = set()
    for row in rows:
        if not row.startswith("|"):
            break
        paths, taken = row.strip("|").split("|")
        names = set(re.findall(r"`(\w+)`", taken))
        for other in re.findall(r"`(/[\w/]+)`", taken):
            names |= like[other].model_fields.keys()
        for where in re.findall(r"`(/[^`]+)`", paths):
            found.add(where)
            assert bodies[where].model_fields.keys() == names, where
    assert found == bodies.keys()
