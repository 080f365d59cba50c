"""llama-server's smaller endpoints: tokenize, templates, embeddings, rerank, props, adapters."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from in_process import asgi_client

from ingot import LLM
from ingot.server.llama.embedding import scaled
from models.tiny_models import Fixture
from tiny_llama import write_tiny_llama

TEXT = "Crème brûlée 🍮 <|im_start|>"


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, context=2048)


def ask(http: httpx.Client, path: str, body: object) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_tokens_of_a_text_and_back(http: httpx.Client, llm: LLM) -> None:
    encode = llm.tokenizer.encode
    plain = ask(http, "/tokenize", {"content": TEXT})
    assert plain == {"tokens": encode(TEXT, add_special=False, parse_special=True)}
    as_text = ask(http, "/tokenize", {"content": TEXT, "parse_special": False})["tokens"]
    assert as_text == encode(TEXT, add_special=False) != plain["tokens"]
    pieces = ask(http, "/tokenize", {"content": TEXT, "with_pieces": True})["tokens"]
    assert [entry["id"] for entry in pieces] == plain["tokens"]
    read = [entry["piece"] for entry in pieces]
    assert read[0] == "Cr"
    joined = b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in read)
    assert joined.decode() == TEXT
    assert any(isinstance(piece, list) for piece in read)  # half a character
    assert ask(http, "/detokenize", plain) == {"content": TEXT, "prompt": TEXT}
    assert ask(http, "/tokenize", {}) == {"tokens": []}
    assert http.post("/detokenize", json={"tokens": [10**6]}).status_code == 400


def test_a_text_that_fills_the_context_is_truncated(tmp_path: Path) -> None:
    async def run() -> Any:
        async with asgi_client(write_tiny_llama(tmp_path / "tiny.gguf")) as client:
            body = {"prompt": [5] * 250, "n_predict": -1, "ignore_eos": True}
            return (await client.post("/completion", json=body)).json()

    answer = asyncio.run(run())
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")
    assert answer["tokens_evaluated"] + answer["tokens_predicted"] == 256


def test_two_requests_may_have_the_same_id(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with asgi_client(write_tiny_llama(tmp_path / "tiny.gguf")) as client:
            body = {"prompt": "a", "n_predict": 20, "ignore_eos": True}
            headers = {"x-request-id": "x"}
            both = [client.post("/completion", json=body, headers=headers) for _ in range(2)]
            return list(await asyncio.gather(*both))

    assert [answer.status_code for answer in asyncio.run(run())] == [200, 200]


def test_special_tokens_around_a_text(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with asgi_client(write_tiny_llama(tmp_path / "tiny.gguf")) as client:
            body = {"content": "a"}
            messages = {"messages": [{"role": "user", "content": "hi"}]}
            return [
                (await client.post("/tokenize", json=body)).json(),
                (await client.post("/tokenize", json=body | {"add_special": True})).json(),
                (await client.post("/apply-template", json=messages)).json(),
            ]

    bare, framed, prompt = asyncio.run(run())
    assert (bare, framed) == ({"tokens": [97]}, {"tokens": [256, 97]})
    assert prompt == {"prompt": "hi<|end|><|start|>"}  # the first token comes when it is read


def test_a_prompt_is_made_as_chats_have_it(http: httpx.Client, llm: LLM) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = ask(http, "/apply-template", {"messages": messages})["prompt"]
    assert prompt == llm.chat_template.render(messages).text
    body = {"prompt": prompt, "temperature": 0, "n_predict": 12}
    assert ask(http, "/completion", body)["content"] == llm.chat(messages, temperature=0).text
    parts = [{"role": "user", "content": [{"type": "text", "text": messages[0]["content"]}]}]
    assert ask(http, "/apply-template", {"messages": parts})["prompt"] == prompt
    begun = [*messages, {"role": "assistant", "content": "It is"}]
    assert ask(http, "/apply-template", {"messages": begun})["prompt"] == prompt + "It is"
    assert http.post("/apply-template", json={"messages": []}).status_code == 400


def test_vectors_come_as_lists(http: httpx.Client, llm: LLM) -> None:
    texts = ["a cat", "a kitten"]
    expected = llm.embed(texts)
    found = ask(http, "/embedding", {"content": texts})
    assert [entry["index"] for entry in found] == [0, 1]
    assert np.allclose([entry["embedding"][0] for entry in found], expected, atol=1e-6)
    (one,) = ask(http, "/embeddings", {"input": texts[0]})
    assert np.allclose(one["embedding"], expected[:1], atol=1e-6)
    (raw,) = ask(http, "/embedding", {"content": texts[0], "embd_normalize": -1, "pooling": "last"})
    last = llm.embed(texts[:1], pooling="last", normalize=False)
    assert np.allclose(raw["embedding"], last, rtol=1e-5)
    for body in ({}, {"content": ""}, {"content": "a", "pooling": "sum"}):
        assert http.post("/embedding", json=body).status_code == 400


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (-1, [3, -4, 0]),
        (0, [24570, -32760, 0]),
        (1, [3 / 7, -4 / 7, 0]),
        (2, [0.6, -0.8, 0]),
        (3, [3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3), 0]),
        (1000, [0.75, -1, 0]),
    ],
)
def test_norms_of_vectors(norm: int, expected: list[float]) -> None:
    assert np.allclose(scaled(np.array([3, -4, 0], np.float32), norm), expected, rtol=1e-3)
    assert not scaled(np.zeros(3, np.float32), norm).any()


def test_a_model_without_a_head_ranks_nothing(http: httpx.Client) -> None:
    for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"):
        answer = http.post(path, json={"query": "q", "documents": ["a", "b"]})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == 400
    assert http.post("/rerank", json={"query": "q"}).status_code == 400
    assert http.post("/rerank", json={"query": "q", "documents": []}).status_code == 400


def test_documents_come_best_first(tmp_path: Path) -> None:
    model = Fixture.load("bert-rank").write(tmp_path / "rank.gguf")
    documents = ["t9 t8", "t11", "t3 t4 t5"]
    with LLM(model, threads=1) as llm:
        scores = llm.rerank("t7", documents).tolist()
        tokens = sum(len(llm.tokenize("t7")) + len(llm.tokenize(text)) for text in documents)
    order = sorted(range(3), key=lambda index: -scores[index])

    async def run() -> list[Any]:
        async with asgi_client(model) as client:
            bodies: list[dict[str, object]] = [
                {"query": "t7", "documents": documents},
                {"query": "t7", "documents": documents, "top_n": 1},
                {"query": "t7", "texts": documents, "top_n": 2},
                {"query": "t7", "texts": documents, "top_n": 1, "return_text": True},
            ]
            return [(await client.post("/v1/rerank", json=body)).json() for body in bodies]

    all_of_them, best, plain, text = asyncio.run(run())
    assert [entry["index"] for entry in all_of_them["results"]] == order
    found = [entry["relevance_score"] for entry in all_of_them["results"]]
    assert found == pytest.approx([scores[index] for index in order], abs=1e-6)
    assert (all_of_them["object"], all_of_them["model"]) == ("list", "tiny")
    assert all_of_them["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert [entry["index"] for entry in best["results"]] == order[:1]
    assert [entry["index"] for entry in plain] == order[:2]
    assert text == [plain[0] | {"text": documents[order[0]]}]


def test_what_a_client_asks_first(http: httpx.Client, llm: LLM) -> None:
    props = http.get("/props").json()
    assert props["total_slots"] == 32
    assert props["default_generation_settings"]["n_ctx"] == 2048
    defaults = props["default_generation_settings"]["params"]
    assert (defaults["n_predict"], defaults["temperature"], defaults["seed"]) == (-1, 0.8, -1)
    assert props["chat_template"] == llm.chat_template.source
    assert (props["bos_token"], props["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert props["modalities"] == {"vision": False, "audio": False}
    assert props["build_info"].startswith("ingot-")
    assert Path(props["model_path"]).name == llm.path.name
    assert http.post("/props", json={}).status_code == 405


def test_there_are_no_adapters(http: httpx.Client) -> None:
    assert http.get("/lora-adapters").json() == []
    assert ask(http, "/lora-adapters", []) == {"success": True}
    answer = http.post("/lora-adapters", json=[{"id": 0, "scale": 0.5}])
    assert answer.status_code == 400
    assert "no adapter 0" in answer.json()["error"]["message"]
