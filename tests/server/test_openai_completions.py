"""`/v1/completions` and `/v1/embeddings` with OpenAI's own client, and `/v1/models`."""

import base64
from pathlib import Path

import numpy as np
import openai
import pytest
from serving import Served

from ingot import LLM
from ingot.graph.kv_layout import BLOCK_TOKENS

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def client(server: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, context=2048)


def complete(client: openai.OpenAI, prompt: object = PROMPT, **fields: object) -> object:
    fields.setdefault("temperature", 0)
    fields.setdefault("max_tokens", 4)
    return client.completions.create(model="any", prompt=prompt, **fields)


def test_a_prompt_is_continued_as_the_library_does(client: openai.OpenAI, llm: LLM) -> None:
    answer = complete(client)
    expected = llm.generate(PROMPT, temperature=0, max_tokens=4)
    assert answer.choices[0].text == expected.text
    assert answer.choices[0].finish_reason == "length"
    assert answer.object == "text_completion"
    assert answer.usage.prompt_tokens == len(llm.tokenize(PROMPT))
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 4


def test_texts_tokens_and_lists_of_either_are_prompts(client: openai.OpenAI, llm: LLM) -> None:
    tokens = llm.tokenize(PROMPT)
    text = complete(client).choices[0].text
    for prompt in (tokens, [PROMPT, PROMPT], [tokens, tokens]):
        answer = complete(client, prompt)
        assert {choice.text for choice in answer.choices} == {text}
        assert answer.usage.prompt_tokens == len(tokens) * len(answer.choices)


def test_control_tokens_of_a_prompt_are_tokens(client: openai.OpenAI, llm: LLM) -> None:
    chat = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    tokens = llm.tokenizer.encode(chat, parse_special=True)
    assert len(tokens) < len(llm.tokenize(chat))
    written = complete(client, chat)
    assert written.usage.prompt_tokens == len(tokens)
    assert written.choices[0].text == complete(client, tokens).choices[0].text


def test_nothing_said_about_the_length_means_sixteen_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="any", prompt="1 2 3", extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16


def test_choices_come_prompt_by_prompt_and_a_seed_repeats_them(client: openai.OpenAI) -> None:
    ask = {"n": 3, "seed": 7, "temperature": 1.2, "max_tokens": 8}
    first = complete(client, ["Once upon", "It was"], **ask)
    again = complete(client, ["Once upon", "It was"], **ask)
    assert [choice.index for choice in first.choices] == list(range(6))
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in again.choices]
    assert len(set(texts)) > 3  # each choice draws for itself


def test_the_best_of_several_are_the_likeliest(client: openai.OpenAI) -> None:
    ask = {"seed": 3, "temperature": 1.5, "max_tokens": 8, "logprobs": 0}
    all_of_them = complete(client, n=5, **ask)
    best = complete(client, n=2, best_of=5, **ask)

    def mean(choice: object) -> float:
        return float(np.mean(choice.logprobs.token_logprobs))

    ranked = sorted(all_of_them.choices, key=mean, reverse=True)
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]
    with pytest.raises(openai.BadRequestError, match="best_of"):
        complete(client, n=3, best_of=2)
    with pytest.raises(openai.BadRequestError, match="best_of"):
        complete(client, best_of=2, stream=True)


def test_echo_scores_a_prompt_as_the_library_does(client: openai.OpenAI, llm: LLM) -> None:
    answer = complete(client, max_tokens=0, echo=True, logprobs=2)
    choice = answer.choices[0]
    assert choice.text == PROMPT
    assert "".join(choice.logprobs.tokens) == PROMPT
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.top_logprobs[0] is None
    expected = llm.score(PROMPT).logprobs
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(expected, abs=1e-6)
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs[1:])
    places = [PROMPT[place:] for place in choice.logprobs.text_offset]
    assert all(map(str.startswith, places, choice.logprobs.tokens))


def test_echo_goes_on_into_what_is_written(client: openai.OpenAI) -> None:
    whole = complete(client, echo=True, logprobs=1).choices[0]
    assert whole.text.startswith(PROMPT)
    assert "".join(whole.logprobs.tokens) == whole.text
    pieces = list(complete(client, echo=True, logprobs=1, stream=True))
    assert "".join(chunk.choices[0].text for chunk in pieces) == whole.text
    told = [value for chunk in pieces for value in chunk.choices[0].logprobs.token_logprobs]
    assert told == whole.logprobs.token_logprobs
    offsets = [value for chunk in pieces for value in chunk.choices[0].logprobs.text_offset]
    assert offsets == whole.logprobs.text_offset


@pytest.mark.parametrize("stream", [False, True])
def test_a_scored_prompt_is_not_read_twice(client: openai.OpenAI, llm: LLM, stream: bool) -> None:
    """The text finds it in the cache, but for what fills no block."""
    prompt = f"{stream}{' and read once, to be scored.' * 20}"
    ask: dict[str, object] = {"echo": True, "logprobs": 1, "max_tokens": 2}
    if stream:
        ask |= {"stream": True, "stream_options": {"include_usage": True}}
        usage = list(complete(client, prompt, **ask))[-1].usage
    else:
        usage = complete(client, prompt, **ask).usage
    tokens = len(llm.tokenize(prompt))
    assert tokens > 100
    assert usage.prompt_tokens_details.cached_tokens > tokens - 2 * BLOCK_TOKENS


def test_a_stream_has_the_same_text_and_ends_with_the_usage(client: openai.OpenAI) -> None:
    ask = {"max_tokens": 12, "n": 2, "seed": 1, "temperature": 0.9}
    whole = complete(client, **ask)
    texts = ["", ""]
    ends = {}
    usage = None
    for chunk in complete(client, stream=True, stream_options={"include_usage": True}, **ask):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert chunk.usage is None
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert ends == {0: whole.choices[0].finish_reason, 1: whole.choices[1].finish_reason}
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )


def test_stop_biases_penalties_and_other_names_are_obeyed(client: openai.OpenAI, llm: LLM) -> None:
    assert complete(client, stop=["Paris"]).choices[0].text == " "
    assert complete(client, stop=["Paris"]).choices[0].finish_reason == "stop"
    paris = llm.tokenize(" Paris")[0]
    assert "Paris" not in complete(client, logit_bias={str(paris): -100}).choices[0].text
    plain = complete(client, "one, two, one, two, one, two,", max_tokens=8).choices[0].text
    less = complete(
        client,
        "one, two, one, two, one, two,",
        max_tokens=8,
        frequency_penalty=2.0,
        presence_penalty=2.0,
    )
    assert less.choices[0].text != plain
    only = complete(client, temperature=1.9, extra_body={"top_k": 1})
    assert only.choices[0].text == complete(client).choices[0].text
    assert complete(client, extra_body={"top_k": -1}).choices[0].text == only.choices[0].text


def test_a_form_can_be_asked_for(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    answer = complete(
        client, "A number as JSON:", max_tokens=40, extra_body={"response_format": form}
    )
    assert answer.choices[0].text.startswith("{")
    for rule in ({"grammar": 'root ::= "7" "8"'}, {"json_schema": {"const": 78}}):
        assert complete(client, max_tokens=8, extra_body=rule).choices[0].text == "78"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": ""}, "empty"),
        ({"prompt": [10**8]}, "vocabulary"),
        ({"prompt": [[1], "a"]}, "prompt"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "max_tokens": "many"}, "max_tokens"),
        ({"prompt": "a", "n": 0}, "n:"),
        ({"prompt": "word " * 4000}, "context"),
        ({"prompt": "a", "logit_bias": {"999999": 1}}, "logit_bias"),
        ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format"),
        ({"prompt": "a", "grammar": "root ::= nothing"}, "GBNF"),
        ({"prompt": "a", "grammar": 'root ::= "a"', "json_schema": True}, "combined"),
    ],
)
def test_what_is_wrong_is_said(client: openai.OpenAI, fields: dict[str, object], said: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/completions", body=fields, cast_to=object)
    assert said in refused.value.message
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param not in ("model", "messages")  # which are not what is wrong


def test_texts_have_vectors(client: openai.OpenAI, llm: LLM) -> None:
    texts = ["a cat", "a kitten", "the income tax law"]
    answer = client.embeddings.create(model="any", input=texts, encoding_format="float")
    vectors = np.array([entry.embedding for entry in answer.data])
    assert vectors == pytest.approx(llm.embed(texts), abs=1e-5)
    assert answer.usage.prompt_tokens == sum(len(llm.tokenize(text)) for text in texts)
    packed = client.post(
        "/embeddings", body={"input": "a cat", "encoding_format": "base64"}, cast_to=object
    )
    unpacked = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    assert unpacked == pytest.approx(vectors[0], abs=1e-5)
    short = client.embeddings.create(model="any", input=llm.tokenize("a cat"), dimensions=16)
    assert len(short.data[0].embedding) == 16
    assert np.linalg.norm(short.data[0].embedding) == pytest.approx(1, abs=1e-5)
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="any", input="a", dimensions=100_000)


def test_models_are_listed(client: openai.OpenAI, smollm2_path: Path) -> None:
    names = [model.id for model in client.models.list()]
    assert names == [smollm2_path.name.removesuffix(".gguf")]
    assert client.models.retrieve(names[0]).id == names[0]


def test_a_scored_prompt_has_one_token_more_though_the_text_ends(
    client: openai.OpenAI, llm: LLM
) -> None:
    chat = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\nYes."
    tokens = llm.tokenizer.encode(chat, parse_special=True)
    bias = {str(llm.tokenizer.eos_id): 100}
    ask = {"echo": True, "logprobs": 1, "max_tokens": 1, "logit_bias": bias}
    choice = complete(client, tokens, **ask).choices[0]
    assert choice.finish_reason == "stop"
    assert len(choice.logprobs.token_logprobs) == len(tokens) + 1
    assert choice.logprobs.tokens[-1] == "<|im_end|>"
    expected = llm.score(tokens).logprobs
    assert choice.logprobs.token_logprobs[1:-1] == pytest.approx(expected, abs=1e-5)
    chunks = complete(client, tokens, stream=True, **ask)
    told = [chunk.choices[0].logprobs.tokens for chunk in chunks]
    assert [token for tokens in told for token in tokens] == choice.logprobs.tokens
