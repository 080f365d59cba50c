"""`/v1/messages` with Anthropic's own client: every parameter, streamed and not."""

import asyncio
import json
from pathlib import Path

import anthropic
import jsonschema
import pytest
from serving import Served

from ingot import LLM

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
CHOOSING = ("temperature", "top_p", "top_k", "seed", "ignore_eos")
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
UNKNOWN_RESULT = {"type": "tool_result", "tool_use_id": "x", "content": "21"}
TIME = {
    "name": "get_time",
    "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}


@pytest.fixture(scope="module")
def client(server: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def asked(fields: dict[str, object]) -> dict[str, object]:
    """Arguments of the client, which knows nothing of what newer models cannot be told."""
    fields = {"max_tokens": 40, "model": "any", "messages": QUESTION, "temperature": 0, **fields}
    older = {name: fields.pop(name) for name in CHOOSING if name in fields}
    return {**fields, "extra_body": older}


def ask(client: anthropic.Anthropic, messages: object = QUESTION, **fields: object) -> object:
    return client.messages.create(**asked({"messages": messages, **fields}))


def streamed(client: anthropic.Anthropic, **fields: object) -> tuple[list[object], object]:
    """The events of a stream, and the message that the client makes of them."""
    with client.messages.stream(**asked(fields)) as stream:
        return list(stream), stream.get_final_message()


def text_of(message: object) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_question_is_answered_as_the_library_does(
    client: anthropic.Anthropic, smollm2_path: Path
) -> None:
    with LLM(smollm2_path, context=2048) as llm:
        prompt_tokens = len(llm.chat_prompt(QUESTION))
        expected = llm.chat(QUESTION, temperature=0)
    answer = ask(client, metadata={"user_id": "somebody"})
    assert text_of(answer) == expected.text == ANSWER
    assert (answer.type, answer.role, answer.stop_reason) == ("message", "assistant", "end_turn")
    assert answer.stop_sequence is None
    assert answer.id.startswith("msg_")
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == prompt_tokens
    assert usage.output_tokens == len(expected.token_ids)


def test_a_stream_has_the_same_answer(client: anthropic.Anthropic) -> None:
    raw = list(ask(client, stream=True))
    kinds = [event.type for event in raw]
    assert kinds[:2] == ["message_start", "content_block_start"]  # the client keeps pings back
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert "".join(event.delta.text for event in raw[2:-3]) == ANSWER
    assert len(raw) > 8
    start = raw[0].message
    assert (start.content, start.stop_reason, start.usage.output_tokens) == ([], None, 0)
    _, message = streamed(client)
    whole = ask(client)
    assert text_of(message) == text_of(whole)
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == whole.usage.output_tokens
    total = message.usage.input_tokens + message.usage.cache_read_input_tokens
    assert total == start.usage.input_tokens


def test_pings_and_names_of_events(client: anthropic.Anthropic) -> None:
    body = {"model": "any", "max_tokens": 2, "messages": QUESTION, "stream": True}
    with client.with_streaming_response.messages.create(**body) as response:
        lines = [line for line in response.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    kinds = [json.loads(line[6:])["type"] for line in lines if line.startswith("data: ")]
    assert names == kinds
    assert names[1] == "ping"


def test_answers_are_cut_where_asked(client: anthropic.Anthropic) -> None:
    cut = ask(client, max_tokens=2)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
    stopped = ask(client, stop_sequences=["zzz", " Paris"])
    assert (text_of(stopped), stopped.stop_reason) == ("The capital of France is", "stop_sequence")
    assert stopped.stop_sequence == " Paris"
    _, message = streamed(client, stop_sequences=[" Paris"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " Paris")


def test_the_context_has_an_end(client: anthropic.Anthropic) -> None:
    long = [{"role": "user", "content": "Repeat for ever: " + "word " * 1960}]
    full = ask(client, long, max_tokens=200, stop_sequences=["\x00"], ignore_eos=True)
    assert full.stop_reason == "model_context_window_exceeded"


def test_how_tokens_are_chosen(client: anthropic.Anthropic) -> None:
    assert text_of(ask(client, temperature=2, top_k=1)) == ANSWER
    assert text_of(ask(client, temperature=2, top_p=0.0001)) == ANSWER
    hot = {"temperature": 1.0, "max_tokens": 12}
    texts = [text_of(ask(client, **hot, seed=seed)) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_the_system_prompt_is_text_or_blocks(client: anthropic.Anthropic) -> None:
    said = "Answer in\nFrench."
    blocks = [{"type": "text", "text": "Answer in"}, {"type": "text", "text": "French."}]
    plain = ask(client, system=said)
    assert text_of(plain) == text_of(ask(client, system=blocks))
    count = client.messages.count_tokens(model="any", messages=QUESTION, system=blocks)
    usage = plain.usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_content_is_text_or_blocks(client: anthropic.Anthropic) -> None:
    blocks = [
        {"type": "text", "text": "What is the capital"},
        {"type": "text", "text": "of France?"},
    ]
    apart = [{"role": "user", "content": [block]} for block in blocks]
    together = [{"role": "user", "content": "What is the capital\nof France?"}]
    answers = [
        ask(client, messages)
        for messages in ([{"role": "user", "content": blocks}], apart, together)
    ]
    assert len({text_of(answer) for answer in answers}) == 1
    counts = [
        client.messages.count_tokens(model="any", messages=messages).input_tokens
        for messages in (apart, together)
    ]
    assert counts[0] == counts[1]


def test_the_model_goes_on_with_what_it_is_made_to_say(client: anthropic.Anthropic) -> None:
    begun = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    assert text_of(ask(client, begun)) == " Paris."


def test_a_tool_must_be_called_where_it_is_required(client: anthropic.Anthropic) -> None:
    fields = {
        "tools": [WEATHER, TIME], "tool_choice": {"type": "any"}, "temperature": 1.0,
        "max_tokens": 200, "seed": 4,
    }  # fmt: skip
    schemas = {tool["name"]: tool["input_schema"] for tool in (WEATHER, TIME)}
    answer = ask(client, **fields)
    _, message = streamed(client, **fields)
    assert [block.type for block in answer.content] == [block.type for block in message.content]
    for one in (answer, message):
        assert one.stop_reason == "tool_use"
        for block in one.content:
            assert block.type == "tool_use"
            jsonschema.validate(block.input, schemas[block.name])
    assert [block.input for block in answer.content] == [block.input for block in message.content]


def test_a_named_tool_is_the_one_that_is_called(client: anthropic.Anthropic) -> None:
    choice = {"type": "tool", "name": "get_time"}
    fields = {"tools": [WEATHER, TIME], "tool_choice": choice}
    events, message = streamed(client, **fields)
    assert "input_json" in {event.type for event in events}
    for one in (ask(client, **fields), message):
        (block,) = one.content
        assert (block.type, block.name, block.input) == ("tool_use", "get_time", {})
        assert block.id


def test_one_call_is_enough_where_more_are_not_wanted(client: anthropic.Anthropic) -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    fields = {"tools": [WEATHER, TIME], "tool_choice": choice, "temperature": 1.0}
    assert len(ask(client, **fields, max_tokens=200).content) == 1


def test_arguments_that_were_cut_are_told_as_far_as_they_go(client: anthropic.Anthropic) -> None:
    choice = {"type": "tool", "name": "get_weather"}
    cut = ask(client, tools=[WEATHER], tool_choice=choice, max_tokens=24)
    assert cut.stop_reason == "max_tokens"
    assert isinstance(cut.content[0].input, dict)


def test_tools_may_be_there_and_not_be_called(client: anthropic.Anthropic) -> None:
    none = ask(client, tools=[WEATHER], tool_choice={"type": "none"})
    assert text_of(none) == ANSWER
    auto = ask(client, tools=[WEATHER], tool_choice={"type": "auto"}, max_tokens=60)
    called = any(block.type == "tool_use" for block in auto.content)
    assert not called or auto.stop_reason in ("tool_use", "max_tokens")


def test_results_of_tools_are_read(client: anthropic.Anthropic) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris"}}
    results = [
        "21 degrees",
        [{"type": "text", "text": "21 degrees"}],
        [{"type": "text", "text": "21 degrees"}, {"type": "text", "text": "and dry"}],
    ]
    counts = []
    for content in results:
        messages = [
            *QUESTION,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I look.", "signature": ""},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "One moment."},
                    use,
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": content},
                    {"type": "text", "text": "So?"},
                ],
            },
        ]
        count = client.messages.count_tokens(model="any", messages=messages, tools=[WEATHER])
        answer = ask(client, messages, tools=[WEATHER])
        usage = answer.usage
        assert usage.input_tokens + usage.cache_read_input_tokens == count.input_tokens
        counts.append(count.input_tokens)
    assert counts[0] == counts[1] < counts[2]
    failed = {"type": "tool_result", "tool_use_id": "t1", "content": "lost", "is_error": True}
    messages[-1]["content"][0] = failed
    assert ask(client, messages, tools=[WEATHER]).type == "message"


def test_answers_have_the_form_asked_for(client: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    answer = json.loads(text_of(ask(client, output_config=form)))
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(answer)) == []


def test_thinking_is_told_to_the_template(client: anthropic.Anthropic) -> None:
    for thinking in ({"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}):
        assert text_of(ask(client, thinking=thinking)) == ANSWER


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
        ({"messages": [{"role": "user", "content": [UNKNOWN_RESULT]}]}, "tool_use_id"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "nobody"}}, "nobody"),
        ({"tool_choice": {"type": "any"}}, "tool"),
        ({"temperature": -1}, "temperature"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, "context"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    client: anthropic.Anthropic, fields: dict[str, object], said: str
) -> None:
    body = {"model": "any", "max_tokens": 5, "messages": QUESTION, **fields}
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.post("/v1/messages", body=body, cast_to=object)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert said in refused.value.body["error"]["message"]


async def ask_many(url: str, count: int) -> list[str]:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:

        async def one() -> str:
            async with client.messages.stream(**asked({})) as stream:
                return await stream.get_final_text()

        return await asyncio.gather(*(one() for _ in range(count)))


def test_many_may_ask_at_once(server: Served) -> None:
    assert asyncio.run(ask_many(server.url, 8)) == [ANSWER] * 8


def test_models_have_anthropic_s_fields(client: anthropic.Anthropic) -> None:
    (model,) = client.models.list(limit=5)
    assert (model.type, model.display_name) == ("model", model.id)
    assert model.created_at.year >= 2026
    assert client.models.retrieve(model.id).id == model.id
    with pytest.raises(anthropic.BadRequestError, match="there is no model"):
        client.models.list(after_id="nonsense")
