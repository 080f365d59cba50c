"""Ollama's API with its own Python client: every route, streamed and not."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import jsonschema
import numpy as np
import pytest
from serving import PATIENCE, Served, serving

from ingot import LLM
from tiny_llama import write_tiny_llama

ollama = pytest.importorskip("ollama", reason="ollama is not here: pip install '.[test]'")

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
GREEDY = {"temperature": 0, "num_predict": 12}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"enum": [41, 42]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator["ollama.Client"]:
    with ollama.Client(host=server.url, timeout=PATIENCE) as client:
        yield client


@pytest.fixture(scope="module")
def name(client: "ollama.Client") -> str:
    """The name of the server's model, as Ollama lists it."""
    (model,) = client.list().models
    return str(model.model)


def test_a_question_is_answered_as_the_library_does(
    client: "ollama.Client", name: str, smollm2_path: Path
) -> None:
    with LLM(smollm2_path, context=2048) as llm:
        prompt_tokens = len(llm.chat_prompt(QUESTION))
        expected = llm.chat(QUESTION, temperature=0)
    answer = client.chat(name, QUESTION, options=GREEDY)
    assert answer.message.content == expected.text == ANSWER
    assert (answer.message.role, answer.model, answer.done) == ("assistant", name, True)
    assert answer.done_reason == "stop"
    assert answer.prompt_eval_count == prompt_tokens
    assert answer.eval_count == len(expected.token_ids)
    assert answer.total_duration >= answer.load_duration + answer.prompt_eval_duration > 0
    assert answer.total_duration >= answer.eval_duration > 0
    assert datetime.fromisoformat(answer.created_at) <= datetime.now(UTC)


def test_a_stream_has_the_same_answer(client: "ollama.Client", name: str) -> None:
    *pieces, last = client.chat(name, QUESTION, options=GREEDY, stream=True)
    assert "".join(piece.message.content for piece in pieces) == ANSWER
    assert len(pieces) > 3
    assert not any(piece.done or piece.done_reason for piece in pieces)
    assert (last.done, last.done_reason, last.message.content) == (True, "stop", "")
    whole = client.chat(name, QUESTION, options=GREEDY)
    assert last.eval_count == whole.eval_count
    assert len(pieces) <= last.eval_count  # tokens that wait for a slow client leave together


def test_answers_are_streamed_by_default_as_lines_of_json(http: httpx.Client) -> None:
    body = {"model": "any", "messages": QUESTION, "options": GREEDY}
    response = http.post("/api/chat", json=body)
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["done"] for line in lines[-2:]] == [False, True]
    whole = http.post("/api/chat", json={**body, "stream": False})
    assert whole.headers["content-type"] == "application/json"


@pytest.mark.parametrize("ending", ["", ":latest"])
def test_names_need_no_tag(client: "ollama.Client", name: str, ending: str) -> None:
    wanted = name.removesuffix(":latest") + ending
    assert client.show(wanted).details.format == "gguf"
    answer = client.chat(wanted, QUESTION, options={"num_predict": 1})
    assert answer.model == wanted
    assert client.pull(wanted).status == "success"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_may_have_a_format(client: "ollama.Client", name: str, stream: bool) -> None:
    def text(form: object) -> str:
        options = {"temperature": 0, "num_predict": 32 if form == PERSON else 8}
        given = client.chat(name, QUESTION, format=form, options=options, stream=stream)
        parts = given if stream else [given]
        return "".join(part.message.content for part in parts)

    jsonschema.validate(json.loads(text(PERSON)), PERSON)
    assert text("json").lstrip().startswith("{")
    assert text("") == ANSWER.rstrip()


def test_options_reach_the_sampler(client: "ollama.Client", name: str) -> None:
    def text(**options: object) -> str:
        given = {"num_predict": 5, "seed": 7, **options}
        return str(client.generate(name, "Tell me", options=given).response)

    assert text(temperature=2.0) == text(temperature=2.0)
    assert text(temperature=2.0, seed=8) != text(temperature=2.0)
    assert text(temperature=2.0, top_k=1) == text(temperature=0)
    prompt = "One, two, three,"
    calm = {"temperature": 0, "num_predict": 2}
    penalty = {**calm, "repeat_penalty": 50.0, "repeat_last_n": -1}
    assert client.generate(name, prompt, raw=True, options=calm).response == " four,"
    assert "," not in client.generate(name, prompt, raw=True, options=penalty).response
    assert text(temperature=2.0, mirostat=2, mirostat_tau=0.1) != text(temperature=2.0)
    assert (
        "capital"
        not in client.chat(name, QUESTION, options={**GREEDY, "stop": ["capital"]}).message.content
    )
    long = client.generate(name, "Tell me", options={"temperature": 0, "num_predict": 3})
    assert (long.eval_count, long.done_reason) == (3, "length")


def test_options_that_are_not_understood_are_told(http: httpx.Client) -> None:
    options = {"num_predict": 1, "num_ctx": 4096, "frobnicate": 1}
    body = {"model": "any", "prompt": "Hi", "stream": False, "options": options, "shift": True}
    warnings = http.post("/api/generate", json=body).json()["warnings"]
    assert [text.split("'")[1] for text in warnings] == ["shift", "frobnicate", "num_ctx"]
    assert "--context" in warnings[-1]
    wrong = http.post("/api/generate", json={**body, "options": {"top_p": 7}})
    assert wrong.status_code == 400
    assert "top_p" in wrong.json()["error"]


def test_generate_renders_the_prompt_unless_it_is_raw(client: "ollama.Client", name: str) -> None:
    rendered = client.generate(name, QUESTION[0]["content"], options=GREEDY)
    assert rendered.response == ANSWER
    pieces = list(client.generate(name, QUESTION[0]["content"], options=GREEDY, stream=True))
    assert "".join(piece.response for piece in pieces) == ANSWER
    assert list(pieces[-1].context) == list(rendered.context)
    short = {"temperature": 0, "num_predict": 2}
    told = client.generate(name, "Who are you?", system="You are a parrot.", options=short)
    untold = client.generate(name, "Who are you?", options=short)
    assert told.prompt_eval_count != untold.prompt_eval_count
    raw = client.generate(name, "The capital of France is", raw=True, options=short)
    assert raw.response.startswith(" Paris")
    assert raw.context is None


def test_generate_continues_the_context_of_an_earlier_answer(
    client: "ollama.Client", name: str
) -> None:
    first = client.generate(name, "My name is Ada. Say hello.", options=GREEDY)
    second = client.generate(name, "And now?", context=first.context, options=GREEDY)
    alone = client.generate(name, "And now?", options=GREEDY)
    assert second.prompt_eval_count > len(first.context)
    assert list(second.context)[: len(first.context)] == list(first.context)
    assert second.response != alone.response


def test_what_generate_cannot_do_is_refused(http: httpx.Client) -> None:
    for fields, word in (
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"images": ["aGk="]}, "images"),
        ({"raw": True, "system": "x"}, "system"),
        ({"suffix": "x"}, "fill-in-the-middle"),
        ({"think": True}, "does not support thinking"),
        ({"think": "high"}, "does not support thinking"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"format": {"type": "nonsense"}}, "nonsense"),
    ):
        response = http.post("/api/generate", json={"model": "any", "prompt": "Hi", **fields})
        assert response.status_code == 400, fields
        assert list(response.json()) == ["error"]
        assert word in response.json()["error"]


def test_embeddings_are_those_of_the_library(
    client: "ollama.Client", name: str, smollm2_path: Path
) -> None:
    texts = ["a cat", "the income tax"]
    with LLM(smollm2_path, context=2048) as llm:
        expected = llm.embed(texts)
        raw = llm.embed(texts[0], normalize=False)
    found = client.embed(name, texts)
    assert np.allclose(found.embeddings, expected, atol=1e-4)
    assert found.prompt_eval_count > 0
    one = client.embed(name, texts[0], dimensions=8)
    assert np.asarray(one.embeddings).shape == (1, 8)
    assert np.isclose(np.linalg.norm(one.embeddings), 1)
    assert np.allclose(client.embeddings(name, texts[0]).embedding, raw, rtol=1e-3, atol=1e-3)


def test_the_model_is_described(client: "ollama.Client", name: str, smollm2_path: Path) -> None:
    (listed,) = client.list().models
    assert listed.size == smollm2_path.stat().st_size
    assert listed.details.family == "llama"
    assert listed.details.parameter_size.endswith("M")
    assert len(listed.digest) == 64
    shown = client.show(name)
    assert shown.details == listed.details
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["tokenizer.ggml.tokens"] is None
    assert "<|im_start|>" in shown.template
    (running,) = client.ps().models
    assert (running.model, running.context_length) == (name, 2048)
    assert running.expires_at > datetime.now(UTC)


def test_everything_is_shown_if_asked_for(http: httpx.Client) -> None:
    shown = http.post("/api/show", json={"name": "any", "verbose": True}).json()
    assert len(shown["model_info"]["tokenizer.ggml.tokens"]) == 49152


def test_the_version_is_one_that_clients_accept(http: httpx.Client) -> None:
    version = http.get("/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)


def test_clients_change_no_files(client: "ollama.Client", name: str) -> None:
    assert [step.status for step in client.pull(name, stream=True)] == ["success"]
    with pytest.raises(ollama.ResponseError, match="does not download") as pulled:
        client.pull("another")
    assert pulled.value.status_code == 403
    with pytest.raises(ollama.ResponseError, match="--allow-deletes") as deleted:
        client.delete(name)
    assert deleted.value.status_code == 403
    with pytest.raises(ollama.ResponseError, match="no model 'another'") as unknown:
        client.delete("another")
    assert unknown.value.status_code == 404


def test_a_prompt_that_is_too_long_is_an_error(client: "ollama.Client", name: str) -> None:
    asked = [{"role": "user", "content": "word " * 3000}]
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError, match="maximum context length") as error:
            list(client.chat(name, asked, stream=stream))
        assert error.value.status_code == 400


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ollama.Client"]:
    """A client of a server with two models and a key."""
    folder = tmp_path_factory.mktemp("two")
    first, second = (write_tiny_llama(folder / f"{name}.gguf") for name in ("first", "second"))
    headers = {"Authorization": "Bearer sesame"}
    with (
        serving(first, "-m", second, "--api-key", "sesame") as served,
        ollama.Client(host=served.url, headers=headers, timeout=PATIENCE) as client,
    ):
        yield client


def test_models_have_names_and_need_the_key(two: "ollama.Client") -> None:
    client = two
    assert [model.model for model in client.list().models] == ["first:latest", "second:latest"]
    assert [model.model for model in client.ps().models] == ["first:latest"]
    for name in ("second", "second:latest"):
        assert client.generate(name, "Hi", options={"num_predict": 2}).eval_count == 2
    assert len(client.ps().models) == 2
    with pytest.raises(ollama.ResponseError, match="no model 'third'") as error:
        client.chat("third", QUESTION)
    assert error.value.status_code == 404
    address = str(two._client.base_url)
    with (
        ollama.Client(host=address) as stranger,
        pytest.raises(ollama.ResponseError, match="API key") as refused,
    ):
        stranger.list()
    assert refused.value.status_code == 401


def test_a_model_is_loaded_and_closed_without_a_prompt(two: "ollama.Client") -> None:
    client = two

    def running() -> list[str]:
        return [str(model.model) for model in client.ps().models]

    assert client.generate("second").done_reason == "load"
    assert "second:latest" in running()
    assert client.chat("second", keep_alive=0).done_reason == "unload"
    assert "second:latest" not in running()
    assert client.generate("second", "Hi", options={"num_predict": 1}, keep_alive="10m").done
    (expires,) = [each.expires_at for each in client.ps().models if each.model == "second:latest"]
    assert 0 < (expires - datetime.now(UTC)).total_seconds() <= 600


def test_long_texts_are_cut_before_they_are_embedded(two: "ollama.Client") -> None:
    assert two.embed("first", ["word " * 100, "a"]).prompt_eval_count == 256 + 2
    with pytest.raises(ollama.ResponseError, match="maximum context length is 256 tokens"):
        two.embed("first", "word " * 100, truncate=False)


def test_requests_of_other_pages_are_refused(two: "ollama.Client") -> None:
    headers = {"Authorization": "Bearer sesame", "Origin": "http://evil.example"}
    address = f"{two._client.base_url}/api/generate"
    response = httpx.post(address, json={"model": "first"}, headers=headers, timeout=PATIENCE)
    assert response.status_code == 403
    assert list(response.json()) == ["error"]
