"""Routes and fields of llama-server and vLLM that OpenAI does not have."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scripted import Ask, script, scripted_model, scripted_server
from starlette.testclient import TestClient

from ingot import LLM, __version__
from ingot.server import ServedModel, ServerOptions, create_app
from models.tiny_models import Fixture

Served = Callable[[Ask], Any]
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
LONG = "word " * 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_model(tmp_path_factory.mktemp("others"), "qwen2_5")


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1) as llm:
        yield llm


@pytest.fixture(scope="module")
def served(path: Path) -> Iterator[Served]:
    with scripted_server(path) as server:
        yield server


def post(served: Served, where: str, status: int = 200, **body: object) -> Any:
    response: httpx.Response = served(lambda client: client.post(where, json=body))
    assert response.status_code == status, response.text
    return response.json()


def get(served: Served, where: str, status: int = 200) -> Any:
    response: httpx.Response = served(lambda client: client.get(where))
    assert response.status_code == status, response.text
    return response.json()


def test_routes_need_no_v1(served: Served) -> None:
    chat = post(served, "/chat/completions", **CHAT, **script("yes"))
    assert chat["choices"][0]["message"]["content"] == "yes"
    made = post(served, "/responses", input="Hello", **script("yes"))
    assert made["output"][0]["content"][0]["text"] == "yes"
    assert get(served, f"/responses/{made['id']}")["id"] == made["id"]
    assert served(lambda client: client.delete(f"/responses/{made['id']}")).status_code == 200
    assert get(served, "/models") == get(served, "/v1/models")
    assert get(served, "/models/tiny") == get(served, "/v1/models/tiny")
    assert len(post(served, "/embeddings", input="Hello")) == 1


def test_models_are_described(served: Served, path: Path) -> None:
    (model,) = get(served, "/v1/models")["data"]
    assert model["id"] == "tiny"
    assert model["aliases"] == ["tiny:latest"]
    assert model["status"] == {"value": "loaded"}
    assert model["capabilities"] == ["completion", "tools"]
    assert model["context_length"] == model["max_model_len"] == 4096
    assert model["size"] == model["meta"]["size"] == path.stat().st_size
    assert (model["meta"]["n_vocab"], model["meta"]["n_embd"]) == (258, 64)


def test_a_model_that_cannot_be_read_is_listed(tmp_path: Path) -> None:
    path = scripted_model(tmp_path, "qwen2_5")
    path.write_bytes(b"GGUF")
    with scripted_server(path) as served:
        (model,) = get(served, "/v1/models")["data"]
        assert (model["status"], model["size"]) == ({"value": "unloaded"}, None)
        assert get(served, "/api/tags") == {"models": []}


def test_tokens_of_conversations_are_counted(served: Served, llm: LLM) -> None:
    expected = len(llm.chat_prompt(CHAT["messages"]))
    for where in ("/chat/completions", "/v1/chat/completions"):
        counted = post(served, f"{where}/input_tokens", **CHAT)
        assert counted == {"object": "response.input_tokens", "input_tokens": expected}
    for where in ("/responses", "/v1/responses"):
        assert post(served, f"{where}/input_tokens", input="Hello")["input_tokens"] == expected
    made = post(served, "/v1/responses", input="Hello", **script("yes"))
    more = {"input": "And?", "previous_response_id": made["id"]}
    assert post(served, "/v1/responses/input_tokens", **more)["input_tokens"] > expected


def test_a_path_allows_only_its_own_methods(served: Served) -> None:
    for name, methods in (("input_tokens", "POST"), ("x", "GET, DELETE")):
        where = f"/v1/responses/{name}"
        response = served(lambda client, where=where: client.request("OPTIONS", where))
        assert (response.status_code, response.headers["allow"]) == (405, methods)


def test_what_a_response_was_made_of_is_stored(served: Served) -> None:
    first = post(served, "/v1/responses", input="Hello", **script("yes"))
    more = {"input": "And?", "previous_response_id": first["id"]}
    second = post(served, "/v1/responses", **more, **script("no"))
    where = f"/v1/responses/{second['id']}/input_items"
    newest = get(served, where)
    assert [item["role"] for item in newest["data"]] == ["user", "assistant", "user"]
    assert newest["data"][0]["content"] == "And?"
    assert newest["has_more"] is False
    oldest = get(served, f"{where}?order=asc&limit=1")
    assert oldest["data"] == newest["data"][-1:]
    assert oldest["has_more"] is True
    rest = get(served, f"{where}?order=asc&after={oldest['last_id']}")
    assert rest["data"] == newest["data"][1::-1]
    assert rest["first_id"] == rest["data"][0]["id"]
    assert "no item" in get(served, f"{where}?after=x", 400)["error"]["message"]
    get(served, f"{where}?limit=0", 400)
    get(served, "/v1/responses/x/input_items", 404)


def test_the_version_is_told(served: Served) -> None:
    assert get(served, "/version") == {"version": __version__}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_a_limit_of_minus_one_is_none(served: Served, name: str) -> None:
    text = "a" * 100
    chat = post(served, "/v1/chat/completions", **CHAT, **script(text), **{name: -1})
    assert chat["choices"][0]["message"]["content"] == text
    done = post(served, "/v1/completions", prompt="?", **script(text), **{name: -1})
    assert done["choices"][0]["text"] == text  # otherwise 16 tokens
    post(served, "/v1/completions", 400, prompt="?", **{name: -2})


def test_a_prompt_that_does_not_fit_is_told_in_words_that_clients_look_for(
    served: Served,
) -> None:
    messages = [{"role": "user", "content": LONG}]
    for where, body in (
        ("/v1/chat/completions", {"messages": messages}),
        ("/v1/completions", {"prompt": LONG}),
        ("/v1/responses", {"input": LONG}),
    ):
        error = post(served, where, 400, **body)["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("This model's maximum context length is 4096 tokens.")
        assert error["n_prompt_tokens"] >= len(LONG)
        assert error["n_ctx"] == 4096
    error = post(served, "/completion", 400, prompt=LONG)["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (len(LONG) + 1, 4096)
    other = post(served, "/completion", 400, prompt="?", top_p=7)["error"]
    assert "n_ctx" not in other


def test_a_text_has_at_least_min_tokens(served: Served, llm: LLM) -> None:
    ends = {"logit_bias": {str(llm.tokenizer.eos_id): 1000}, "max_tokens": 9}
    for fields, tokens in (({}, 0), ({"min_tokens": 5}, 5)):
        usage = post(served, "/v1/completions", prompt="?", **ends, **fields)["usage"]
        assert usage["completion_tokens"] == tokens
    post(served, "/v1/completions", 400, prompt="?", min_tokens=9, max_tokens=3)


def test_prompts_are_tokenized_for_vllm(served: Served, llm: LLM) -> None:
    ids = llm.tokenize("Hello")
    counted = post(served, "/tokenize", prompt="Hello", return_token_strs=True)
    assert counted["tokens"] == ids
    assert (counted["count"], counted["max_model_len"]) == (len(ids), 4096)
    assert counted["token_strs"][-5:] == list("Hello")
    assert post(served, "/tokenize", prompt="Hello", add_special_tokens=False)["count"] == 5
    rendered = post(served, "/tokenize", **CHAT)
    assert rendered["tokens"] == llm.chat_prompt(CHAT["messages"])
    shorter = post(served, "/tokenize", **CHAT, add_generation_prompt=False)
    assert shorter["count"] < rendered["count"]
    assert post(served, "/tokenize", content="Hello") == {"tokens": ids[1:]}
    post(served, "/tokenize", 400, prompt="a", content="b")
    post(served, "/tokenize", 400, prompt="a", **CHAT)
    text = post(served, "/detokenize", tokens=ids[1:])
    assert text == {"content": "Hello", "prompt": "Hello"}


def test_vectors_are_pooled(served: Served, llm: LLM) -> None:
    texts = ["Hello", "Goodbye"]
    pooled = post(served, "/pooling", input=texts)
    assert np.allclose([entry["data"] for entry in pooled["data"]], llm.embed(texts), atol=1e-4)
    assert [entry["index"] for entry in pooled["data"]] == [0, 1]
    post(served, "/pooling", 400, input=texts, encoding_format="base64")


def test_models_without_a_ranking_head_score_by_similarity(served: Served, llm: LLM) -> None:
    vectors = llm.embed(["a", "b", "c"])
    scored = post(served, "/score", text_1="a", text_2=["b", "c"])
    found = [entry["score"] for entry in scored["data"]]
    assert np.allclose(found, vectors[1:] @ vectors[0], atol=1e-4)
    by_pair = post(served, "/v1/score", text_1=["a", "b"], text_2=["b", "b"])["data"]
    assert np.allclose([entry["score"] for entry in by_pair], [found[0], 1], atol=1e-4)
    post(served, "/score", 400, text_1=["a", "b"], text_2=["c"])


def test_rerankers_score_pairs(tmp_path: Path) -> None:
    path = Fixture.load("bert-rank").write(tmp_path / "ranker.gguf")
    documents = ["t9 t8", "t11"]
    with scripted_server(path) as served:
        ranked = post(served, "/v2/rerank", query="t7", documents=documents, return_documents=True)
        raw = {entry["index"]: entry["relevance_score"] for entry in ranked["results"]}
        assert [documents[entry["index"]] for entry in ranked["results"]] == [
            entry["document"]["text"] for entry in ranked["results"]
        ]
        scored = post(served, "/score", text_1="t7", text_2=documents)["data"]
        expected = [1 / (1 + np.exp(-raw[index])) for index in (0, 1)]
        assert np.allclose([entry["score"] for entry in scored], expected, atol=1e-5)
        by_pair = post(served, "/score", text_1=["t7", "t8"], text_2=documents)["data"]
        assert by_pair[0]["score"] == pytest.approx(scored[0]["score"], abs=1e-5)
        plain = post(served, "/rerank", query="t7", documents=documents)
        assert "document" not in json.dumps(plain["results"])
        (model,) = get(served, "/v1/models")["data"]
        assert model["capabilities"] == ["rerank"]


def test_models_come_in_pages(path: Path) -> None:
    models = tuple(ServedModel(name=name, path=path) for name in "abcd")
    app = create_app(ServerOptions(models=models, allowed_hosts=("testserver",)))
    with TestClient(app) as client:

        def page(query: str) -> tuple[list[str], bool]:
            answer = client.get(f"/v1/models?{query}").json()
            names = [model["id"] for model in answer["data"]]
            assert [answer["first_id"], answer["last_id"]] == [names[0], names[-1]]
            return names, answer["has_more"]

        assert page("") == (["a", "b", "c", "d"], False)
        assert page("limit=2") == (["a", "b"], True)
        assert page("limit=2&after_id=b") == (["c", "d"], False)
        assert page("limit=2&before_id=d") == (["b", "c"], True)


def test_head_is_get_without_a_body(served: Served) -> None:
    for where in ("/", "/api/tags", "/health", "/v1/models", "/v1/responses/none"):
        head = served(lambda client, where=where: client.head(where))
        answer = served(lambda client, where=where: client.get(where))
        assert head.status_code == answer.status_code
        assert head.headers["content-type"] == answer.headers["content-type"]
        assert (head.content, head.headers["content-length"]) == (b"", str(len(answer.content)))
    assert served(lambda client: client.head("/completion")).status_code == 405


def test_the_tokenizer_is_described(served: Served, llm: LLM) -> None:
    response = served(lambda client: client.get("/tokenizer_info"))
    assert response.status_code == 200
    info = response.json()
    assert info["vocab_size"] == llm.tokenizer.vocab_size
    assert info["model_max_length"] == llm.context
    assert info["chat_template"] == llm.chat_template.source
    controls = {int(id): text for id, text in info["added_tokens_decoder"].items()}
    assert controls == {id: text for text, id in llm.tokenizer.control_tokens().items()}
