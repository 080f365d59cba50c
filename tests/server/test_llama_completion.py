"""`/completion` as llama-server's clients use it."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from ingot import LLM

PROMPT = "The capital of France is"
LONG = "A list of the capitals of all countries in Europe, in the order of the alphabet: " * 4


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, context=2048)


def ask(http: httpx.Client, prompt: object = PROMPT, **fields: object) -> Any:
    answer = http.post("/completion", json={"temperature": 0, "prompt": prompt, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(http: httpx.Client, kind: str = "invalid_request_error", **fields: object) -> str:
    answer = http.post("/completion", json={"prompt": PROMPT, "n_predict": 2, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (400, kind)
    message: str = error["message"]
    return message


def events(http: httpx.Client, **fields: object) -> list[dict[str, Any]]:
    body = {"prompt": PROMPT, "temperature": 0, "stream": True, **fields}
    with http.stream("POST", "/completion", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: {") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_text_and_all_that_is_told_of_it(http: httpx.Client, llm: LLM) -> None:
    expected = llm.generate(PROMPT, temperature=0, max_tokens=5)
    answer = ask(http, n_predict=5, return_tokens=True, cache_prompt=False)
    assert answer["content"] == expected.text
    assert answer["tokens"] == list(expected.token_ids)
    assert answer["prompt"] == PROMPT
    assert (answer["index"], answer["stop"], answer["truncated"]) == (0, True, False)
    assert (answer["stop_type"], answer["stopping_word"]) == ("limit", "")
    assert answer["has_new_line"] == ("\n" in expected.text)
    read = len(llm.tokenize(PROMPT))
    told = (answer["tokens_predicted"], answer["tokens_evaluated"], answer["tokens_cached"])
    assert told == (5, read, 0)
    timings = answer["timings"]
    assert (timings["predicted_n"], timings["prompt_n"], timings["cache_n"]) == (5, read, 0)
    assert timings["prompt_ms"] > 0
    assert timings["prompt_per_second"] == pytest.approx(read / timings["prompt_ms"] * 1e3)
    settings = answer["generation_settings"]
    assert (settings["n_predict"], settings["temperature"], settings["top_k"]) == (5, 0, 40)
    assert "completion_probabilities" not in answer
    assert ask(http, n_predict=1)["tokens"] == []


def test_both_names_and_every_form_of_prompt(http: httpx.Client, llm: LLM) -> None:
    tokens = llm.tokenize(PROMPT)
    text = ask(http, n_predict=3)["content"]
    mixed = [*llm.tokenize("The capital"), " of France is"]
    for prompt in (tokens, mixed, {"prompt_string": PROMPT}, [PROMPT]):
        assert ask(http, prompt, n_predict=3)["content"] == text
    several = ask(http, [PROMPT, mixed, tokens, {"prompt_string": PROMPT}], n_predict=3)
    assert [answer["content"] for answer in several] == [text] * 4
    assert [answer["index"] for answer in several] == [0, 1, 2, 3]
    body = {"prompt": PROMPT, "n_predict": 3, "temperature": 0}
    assert http.post("/completions", json=body).json()["content"] == text


def test_names_of_control_tokens_are_these_tokens(http: httpx.Client, llm: LLM) -> None:
    answer = ask(http, "<|im_start|>user", n_predict=1)
    assert answer["tokens_evaluated"] == 2
    assert llm.tokenizer.control_tokens()["<|im_start|>"] == 1
    assert answer["prompt"] == "<|im_start|>user"


def test_why_a_text_ended(http: httpx.Client) -> None:
    word = ask(http, n_predict=20, stop=["nothing", "", "."])
    assert (word["stop_type"], word["stopping_word"], word["content"]) == ("word", ".", " Paris")
    chat = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>"
    end = ask(http, chat.removesuffix("<|im_end|>"), n_predict=5, logit_bias=[[2, 100.0]])
    assert (end["stop_type"], end["tokens_predicted"]) == ("eos", 0)
    none = ask(http, n_predict=0)
    assert (none["stop_type"], none["content"]) == ("limit", "")
    late = ask(http, n_predict=-1, ignore_eos=True, t_max_predict_ms=50)
    assert late["stop_type"] == "limit"
    assert 0 < late["tokens_predicted"] < 1000


def test_a_stream_has_its_own_chunks(http: httpx.Client) -> None:
    whole = ask(http, n_predict=6, return_tokens=True)
    *chunks, last = events(http, n_predict=6, timings_per_token=True)
    assert "".join(chunk["content"] for chunk in chunks) == whole["content"]
    assert [token for chunk in chunks for token in chunk["tokens"]] == whole["tokens"]
    assert not any(chunk["stop"] for chunk in chunks)
    assert [chunk["tokens_predicted"] for chunk in chunks] == list(range(1, 7))
    assert chunks[-1]["timings"]["predicted_n"] == 6
    assert (last["stop"], last["content"], last["tokens"]) == (True, "", [])
    assert last["stop_type"] == "limit"
    assert last["generation_settings"]["stream"] is True
    assert last["tokens_predicted"] == 6
    several = events(http, prompt=["1 2 3", PROMPT], n_predict=2)
    assert sorted(event["index"] for event in several if event["stop"]) == [0, 1]
    assert "timings" not in several[0]


def test_the_cache_is_used_unless_it_must_not(http: httpx.Client, llm: LLM) -> None:
    length = len(llm.tokenize(LONG))
    ask(http, LONG, n_predict=1)
    again = ask(http, LONG, n_predict=1)
    assert again["tokens_cached"] == again["timings"]["cache_n"] == length - 1
    anew = ask(http, LONG, n_predict=1, cache_prompt=False)
    assert anew["tokens_cached"] == 0
    assert anew["timings"]["prompt_n"] == length


def test_probabilities_are_the_model_s_own_or_those_behind_the_samplers(
    http: httpx.Client, llm: LLM
) -> None:
    expected = llm.generate(PROMPT, temperature=0, max_tokens=3, logprobs=True, n_probs=4)
    found = ask(http, n_predict=3, n_probs=4)["completion_probabilities"]
    for token, entry in zip(found, expected.logprobs, strict=True):
        assert token["id"] == entry.token
        assert token["logprob"] == pytest.approx(entry.logprob, abs=1e-3)
        assert bytes(token["bytes"]).decode() == token["token"]
        assert [other["id"] for other in token["top_logprobs"]] == [id for id, _ in entry.top]
        values = [other["logprob"] for other in token["top_logprobs"]]
        assert values == pytest.approx([value for _, value in entry.top], abs=1e-6)
    behind = ask(
        http, n_predict=3, n_probs=4, post_sampling_probs=True, temperature=1.0, top_k=3, seed=1
    )["completion_probabilities"]
    for token in behind:
        assert 0 < token["prob"] <= 1
        assert len(token["top_probs"]) <= 3
        assert sum(other["prob"] for other in token["top_probs"]) == pytest.approx(1, abs=1e-5)
        assert "logprob" not in token
    chunks = events(http, n_predict=3, n_probs=4)
    streamed = [entry for chunk in chunks for entry in chunk.get("completion_probabilities", [])]
    assert streamed == found


def test_biases_in_all_their_forms(http: httpx.Client, llm: LLM) -> None:
    (paris,) = llm.tokenize(" Paris")
    plain = ask(http, n_predict=1)
    assert plain["content"] == " Paris"
    for bias in ([[paris, False]], [[" Paris", False]], {str(paris): False}, {" Paris": -50.0}):
        answer = ask(http, n_predict=1, logit_bias=bias)
        assert answer["content"] != " Paris"
    settings = ask(http, n_predict=1, logit_bias=[[paris, False]])["generation_settings"]
    assert settings["logit_bias"] == [{"token": paris, "bias": False}]
    (city,) = llm.tokenize(" London")
    assert ask(http, n_predict=1, logit_bias=[[city, 100]])["content"] == " London"
    assert "logit_bias" in refused(http, logit_bias=[[paris, "much"]])
    assert "logit_bias" in refused(http, logit_bias=[[paris]])
    assert "vocabulary" in refused(http, logit_bias=[[10**6, 1.0]])


def test_grammars_and_schemas(http: httpx.Client) -> None:
    yes = ask(http, n_predict=8, grammar='root ::= "yes" | "no"')
    assert yes["content"] in ("yes", "no")
    assert yes["stop_type"] == "eos"
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}
    made = ask(http, n_predict=60, json_schema=schema, grammar="")
    assert len(json.loads(made["content"])) == 2
    assert "combined" in refused(http, grammar='root ::= "a"', json_schema={})
    assert "GBNF" in refused(http, grammar="root ::= nothing")
    assert "schema" in refused(http, json_schema={"type": "nonsense"})


def test_samplers_by_name_and_by_letter(http: httpx.Client) -> None:
    by_name = ask(http, n_predict=4, samplers=["top_k", "typ_p", "temperature"], seed=3)
    by_letter = ask(http, n_predict=4, samplers="kyt", seed=3)
    order = by_letter["generation_settings"]["samplers"]
    assert order == by_name["generation_settings"]["samplers"]
    assert order[-3:] == ["top_k", "typical_p", "temperature"]
    assert "samplers" in refused(http, samplers="q")
    assert "samplers" in refused(http, samplers=["nothing"])
    greedy = ask(http, n_predict=2, temperature=-1, top_k=-1, min_keep=2, seed=-1)
    assert greedy["generation_settings"]["temperature"] == 0
    assert greedy["generation_settings"]["top_k"] == -1
    assert greedy["generation_settings"]["seed"] >= 0


def test_a_seed_repeats_a_text_and_several_differ(http: httpx.Client) -> None:
    hot = {"n_predict": 8, "temperature": 1.5, "seed": 11, "top_p": 1.0, "min_p": 0.0}
    first, second = ask(http, **hot), ask(http, **hot)
    assert first["content"] == second["content"]
    assert first["generation_settings"]["seed"] == 11
    texts = [answer["content"] for answer in ask(http, n_cmpl=3, **hot)]
    assert texts[0] == first["content"]
    assert len(set(texts)) == 3


def test_only_the_fields_that_are_wanted(http: httpx.Client) -> None:
    fields = ["content", "timings/predicted_n", "generation_settings/top_k", "nothing", "stop/x"]
    answer = ask(http, n_predict=2, response_fields=fields)
    assert answer.keys() == {"content", "timings/predicted_n", "generation_settings/top_k"}
    assert (answer["timings/predicted_n"], answer["generation_settings/top_k"]) == (2, 40)


def test_what_cannot_be_answered_says_why(http: httpx.Client) -> None:
    assert "prompt" in refused(http, prompt=None)
    assert "prompt" in refused(http, prompt=[])
    assert "empty" in refused(http, prompt="")
    assert "vocabulary" in refused(http, prompt=[10**6])
    assert "context" in refused(http, "exceed_context_size_error", prompt=[5] * 3000)
    assert "cannot also hold token ids" in refused(http, prompt=[1, [2]])
    assert "id_slot" in refused(http, id_slot=1000)
    assert "multimodal" in refused(http, prompt={"prompt_string": "a", "multimodal_data": ["x"]})
    for name, value in {
        "n_predict": -2,
        "n_probs": 1001,
        "top_p": 1.5,
        "stop": [1],
        "temperature": "hot",
        "cache_prompt": "yes",
        "n_cmpl": 0,
    }.items():
        assert name in refused(http, **{name: value})


def test_its_measurements_are_there_under_its_names(http: httpx.Client) -> None:
    def read() -> dict[str, float]:
        lines = http.get("/metrics").text.splitlines()
        return {
            name.removeprefix("llamacpp:"): float(value)
            for name, value in (line.split(" ") for line in lines if line.startswith("llamacpp:"))
        }

    while (before := read())["requests_processing"]:
        pass  # what an earlier test has left comes to its end
    ask(http, n_predict=4, cache_prompt=False)
    after = read()
    assert after["tokens_predicted_total"] - before["tokens_predicted_total"] == 4
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == 5
    for name in ("prompt_seconds_total", "tokens_predicted_seconds_total", "n_decode_total"):
        assert after[name] > before[name]
    assert after["requests_processing"] == after["requests_deferred"] == 0
    assert np.isfinite(list(after.values())).all()
    assert {"prompt_tokens_seconds", "predicted_tokens_seconds", "n_tokens_max"} <= after.keys()
