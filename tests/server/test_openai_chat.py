"""`/v1/chat/completions` with OpenAI's own client: every parameter, streamed and not."""

import asyncio
import json
import math
from pathlib import Path

import jsonschema
import openai
import pytest
from pydantic import BaseModel
from serving import Served

from ingot import LLM

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
}


@pytest.fixture(scope="module")
def client(server: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def chat(client: openai.OpenAI, messages: object = QUESTION, **fields: object) -> object:
    fields.setdefault("temperature", 0)
    return client.chat.completions.create(model="any", messages=messages, **fields)


def test_a_question_is_answered_as_the_library_does(
    client: openai.OpenAI, smollm2_path: Path
) -> None:
    with LLM(smollm2_path, context=2048) as llm:
        expected = llm.chat(QUESTION, temperature=0)
        prompt_tokens = len(llm.chat_prompt(QUESTION))
    answer = chat(client)
    choice = answer.choices[0]
    assert choice.message.content == expected.text == ANSWER
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert choice.message.tool_calls is None
    assert answer.usage.prompt_tokens == prompt_tokens
    assert answer.usage.completion_tokens == len(expected.token_ids)
    assert answer.system_fingerprint.startswith("ingot-")


def test_a_stream_has_the_same_answer(client: openai.OpenAI) -> None:
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == ANSWER
    assert len([text for text in texts if text]) > 3
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == chat(client).usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_has_no_usage_unasked(client: openai.OpenAI) -> None:
    assert all(chunk.usage is None for chunk in chat(client, stream=True))


def test_answers_are_cut_where_asked(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        cut = chat(client, **{name: 2})
        assert cut.choices[0].finish_reason == "length"
        assert cut.usage.completion_tokens == 2
    stopped = chat(client, stop=[" Paris", "zzz"])
    assert stopped.choices[0].message.content == "The capital of France is"
    assert stopped.choices[0].finish_reason == "stop"
    assert chat(client, stop=" of").choices[0].message.content == "The capital"


def test_several_answers_and_a_seed(client: openai.OpenAI) -> None:
    ask = {"n": 3, "seed": 11, "temperature": 1.3, "max_tokens": 10}
    first, again = chat(client, **ask), chat(client, **ask)
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) > 1
    streamed = ["", "", ""]
    for chunk in chat(client, stream=True, **ask):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_log_probabilities(client: openai.OpenAI) -> None:
    answer = chat(client, logprobs=True, top_logprobs=3, max_tokens=5).choices[0]
    entries = answer.logprobs.content
    assert "".join(entry.token for entry in entries) == answer.message.content
    for entry in entries:
        assert bytes(entry.bytes).decode() == entry.token
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == entry.top_logprobs[0].logprob  # the likeliest was taken
        assert 0 < sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1.0001
    streamed = [
        entry
        for chunk in chat(client, logprobs=True, top_logprobs=3, max_tokens=5, stream=True)
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert streamed == entries
    plain = chat(client, logprobs=True, max_tokens=2).choices[0].logprobs.content
    assert plain[0].top_logprobs == []


def test_biases_and_penalties(client: openai.OpenAI, smollm2_path: Path) -> None:
    with LLM(smollm2_path) as llm:
        paris = llm.tokenize(" Paris", add_special=False)[0]
    banned = chat(client, logit_bias={paris: -100}, max_tokens=12).choices[0].message.content
    assert " Paris" not in banned
    loop = [{"role": "user", "content": "Say: spam spam spam spam spam spam spam spam"}]
    plain = chat(client, loop, max_tokens=24).choices[0].message.content
    for fields in ({"frequency_penalty": 1.9}, {"presence_penalty": 1.9}):
        assert chat(client, loop, max_tokens=24, **fields).choices[0].message.content != plain
    top = chat(client, temperature=2, top_p=0.0001).choices[0].message.content
    assert top == ANSWER


class City(BaseModel):
    """What is to come back."""

    name: str
    large: bool


def test_answers_have_the_form_asked_for(client: openai.OpenAI) -> None:
    ask = [{"role": "user", "content": "Paris as JSON with name and large"}]
    form = {
        "type": "json_schema",
        "json_schema": {"name": "city", "schema": City.model_json_schema(), "strict": True},
    }
    answer = chat(client, ask, response_format=form, max_tokens=60)
    City.model_validate_json(answer.choices[0].message.content)
    parsed = client.chat.completions.parse(
        model="any", messages=ask, response_format=City, max_tokens=60, temperature=0
    )
    assert isinstance(parsed.choices[0].message.parsed, City)
    anything = chat(
        client,
        ask,
        response_format={"type": "json_object"},
        temperature=1.5,
        seed=5,
        max_tokens=300,
    ).choices[0]
    if anything.finish_reason == "stop":
        assert isinstance(json.loads(anything.message.content), dict)
    assert anything.message.content.startswith("{")
    assert chat(client, response_format={"type": "text"}).choices[0].message.content == ANSWER
    for rule in ({"grammar": 'root ::= "yes" | "no"'}, {"json_schema": {"enum": [True, False]}}):
        ruled = chat(client, extra_body=rule, max_tokens=8).choices[0].message.content
        assert ruled in ("yes", "no", "true", "false")


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_must_be_called_where_it_is_required(client: openai.OpenAI, stream: bool) -> None:
    ask = {"tools": [WEATHER, TIME], "tool_choice": "required", "temperature": 1.2, "seed": 4}
    calls, reason = called(client, stream=stream, max_tokens=200, **ask)
    assert reason == "tool_calls"
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, TIME)}
    assert calls
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), schemas[name])


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_is_the_one_that_is_called(client: openai.OpenAI, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "get_time"}}
    calls, reason = called(client, stream=stream, tools=[WEATHER, TIME], tool_choice=choice)
    assert (calls, reason) == ([("get_time", "{}")], "tool_calls")


def called(
    client: openai.OpenAI, *, stream: bool, **fields: object
) -> tuple[list[tuple[str, str]], str]:
    """The calls of an answer, and how it ended."""
    if not stream:
        choice = chat(client, **fields).choices[0]
        assert choice.message.content is None
        assert all(call.id and call.type == "function" for call in choice.message.tool_calls)
        return [
            (call.function.name, call.function.arguments) for call in choice.message.tool_calls
        ], choice.finish_reason
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    reason = ""
    for chunk in chat(client, stream=True, **fields):
        choice = chunk.choices[0]
        reason = choice.finish_reason or reason
        assert not choice.delta.content
        for call in choice.delta.tool_calls or ():
            if call.function.name:
                assert call.id
                names[call.index] = call.function.name
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    return [(names[index], arguments[index]) for index in sorted(names)], reason


def test_one_call_is_enough_where_more_are_not_wanted(client: openai.OpenAI) -> None:
    for stream in (False, True):
        calls, _ = called(
            client,
            stream=stream,
            tools=[WEATHER, TIME],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=1.5,
            seed=2,
            max_tokens=200,
        )
        assert len(calls) == 1


def test_tools_may_be_there_and_not_be_called(client: openai.OpenAI) -> None:
    assert chat(client, tools=[WEATHER], tool_choice="none").choices[0].message.content == ANSWER
    auto = chat(client, tools=[WEATHER], tool_choice="auto", max_tokens=100).choices[0]
    assert auto.finish_reason in ("stop", "tool_calls", "length")
    assert bool(auto.message.tool_calls) == (auto.finish_reason == "tool_calls")


def test_results_of_tools_are_read(client: openai.OpenAI) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris", "unit": "C"}'},
    }
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is 21 degrees in Paris."},
    ]
    with_result = chat(client, messages, tools=[WEATHER], max_tokens=30)
    without = chat(client, messages[:1], tools=[WEATHER], max_tokens=30)
    assert with_result.usage.prompt_tokens > without.usage.prompt_tokens + 10


def test_parts_of_text_are_one_message(client: openai.OpenAI) -> None:
    parts = [
        {"type": "text", "text": "What is the capital of"},
        {"type": "text", "text": "France?"},
    ]
    joined = [{"role": "user", "content": "What is the capital of\nFrance?"}]
    answer = chat(client, [{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == chat(client, joined).choices[0].message.content
    assert answer.usage.prompt_tokens == chat(client, joined).usage.prompt_tokens


def test_the_model_goes_on_with_what_it_is_made_to_say(client: openai.OpenAI) -> None:
    answer = chat(client, [*QUESTION, {"role": "assistant", "content": "The capital of France is"}])
    assert answer.choices[0].message.content == " Paris."


def test_a_developer_is_heard_as_the_system(client: openai.OpenAI) -> None:
    one = [{"role": "developer", "content": "Answer with one word."}, *QUESTION]
    other = [{"role": "system", "content": "Answer with one word."}, *QUESTION]
    assert chat(client, one).choices[0].message.content == (
        chat(client, other).choices[0].message.content
    )


def test_the_template_gets_what_is_meant_for_it(client: openai.OpenAI) -> None:
    extra = {"chat_template_kwargs": {"add_generation_prompt": False}}
    less = chat(client, max_tokens=1, extra_body=extra).usage.prompt_tokens
    assert less < chat(client, max_tokens=1).usage.prompt_tokens


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
        ({"messages": QUESTION, "top_logprobs": 3}, "logprobs"),
        ({"messages": QUESTION, "tool_choice": "required"}, "tool"),
        (
            {
                "messages": QUESTION,
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "nobody"}},
            },
            "nobody",
        ),
        ({"messages": QUESTION, "tools": [WEATHER, WEATHER]}, "get_weather"),
        ({"messages": QUESTION, "chat_template_kwargs": {"messages": []}}, "messages"),
        ({"messages": QUESTION, "modalities": ["audio"]}, "text"),
        ({"messages": QUESTION, "stop": ""}, "stop"),
        ({"messages": QUESTION, "seed": 1.5}, "seed"),
        ({"messages": QUESTION, "grammar": "root ::= nothing"}, "GBNF"),
        (
            {
                "messages": QUESTION,
                "grammar": 'root ::= "a"',
                "response_format": {"type": "json_object"},
            },
            "response_format",
        ),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, "context"),
    ],
)
def test_what_is_wrong_is_said(client: openai.OpenAI, fields: dict[str, object], said: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", body=fields, cast_to=object)
    assert said in refused.value.message
    assert refused.value.type == "invalid_request_error"


async def ask_many(url: str, count: int) -> list[str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        async def one() -> str:
            stream = await client.chat.completions.create(
                model="any", messages=QUESTION, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        return await asyncio.gather(*(one() for _ in range(count)))


def test_many_may_ask_at_once(server: Served) -> None:
    assert asyncio.run(ask_many(server.url, 12)) == [ANSWER] * 12
