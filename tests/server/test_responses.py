"""`/v1/responses` with OpenAI's own client: every parameter, streamed and not."""

import json

import jsonschema
import openai
import pytest
from pydantic import BaseModel
from serving import Served

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
WEATHER = {
    "type": "function",
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
    "strict": True,
}
TIME = {
    "type": "function",
    "name": "get_time",
    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    "strict": False,
}


@pytest.fixture(scope="module")
def client(server: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def ask(client: openai.OpenAI, said: object = QUESTION, **fields: object) -> object:
    fields = {"temperature": 0, "max_output_tokens": 40, "model": "any", **fields}
    return client.responses.create(input=said, **fields)


def test_a_question_is_answered_as_in_a_chat(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    chat = client.chat.completions.create(model="any", messages=messages, temperature=0)
    answer = ask(client, metadata={"topic": "cities"}, user="somebody")
    assert answer.output_text == chat.choices[0].message.content == ANSWER
    (item,) = answer.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    assert answer.usage.output_tokens == chat.usage.completion_tokens
    assert answer.usage.total_tokens == chat.usage.total_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert (answer.temperature, answer.max_output_tokens) == (0, 40)
    assert (answer.metadata, answer.user) == ({"topic": "cities"}, "somebody")
    assert (answer.tools, answer.tool_choice, answer.parallel_tool_calls) == ([], "auto", True)


def test_a_stream_tells_of_every_item(client: openai.OpenAI) -> None:
    events = list(ask(client, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events[4:-4]) == events[-4].text == ANSWER
    begun, ended = events[0].response, events[-1].response
    assert (begun.status, begun.output, begun.usage) == ("in_progress", [], None)
    assert ended.output_text == ANSWER
    assert ended.id == begun.id
    assert events[2].item.id == ended.output[0].id == events[5].item_id
    whole = ask(client)
    assert ended.usage.output_tokens == whole.usage.output_tokens
    with client.responses.stream(
        model="any", input=QUESTION, temperature=0, max_output_tokens=40
    ) as stream:
        assert stream.get_final_response().output_text == ANSWER


def test_answers_are_cut_where_asked(client: openai.OpenAI) -> None:
    cut = ask(client, max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (cut.usage.output_tokens, cut.output[0].status) == (2, "incomplete")
    *_, last = ask(client, max_output_tokens=2, stream=True)
    assert last.type == "response.incomplete"
    assert last.response.output_text == cut.output_text


def test_how_tokens_are_chosen(client: openai.OpenAI) -> None:
    assert ask(client, temperature=2, top_p=0.0001).output_text == ANSWER
    hot = {"temperature": 1.3, "max_output_tokens": 12}
    texts = [ask(client, **hot, extra_body={"seed": seed}).output_text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_input_is_text_or_items(client: openai.OpenAI) -> None:
    parts = [{"type": "input_text", "text": QUESTION}]
    forms = (
        [{"role": "user", "content": QUESTION}],
        [{"type": "message", "role": "user", "content": parts}],
    )
    tokens = ask(client).usage.input_tokens
    for form in forms:
        answer = ask(client, form)
        assert (answer.output_text, answer.usage.input_tokens) == (ANSWER, tokens)
    system = ask(client, instructions="Answer in French.")
    for role in ("system", "developer"):
        items = [{"role": role, "content": "Answer in French."}, *forms[0]]
        same = ask(client, items)
        assert same.output_text == system.output_text
        assert same.usage.input_tokens == system.usage.input_tokens


def test_a_conversation_goes_on_from_an_answer(client: openai.OpenAI) -> None:
    first = ask(client)
    second = ask(client, "And of Italy?", previous_response_id=first.id)
    items = [
        {"role": "user", "content": QUESTION},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"role": "user", "content": "And of Italy?"},
    ]
    assert ask(client, items).output_text == second.output_text
    assert ask(client, items).usage.input_tokens == second.usage.input_tokens
    assert second.previous_response_id == first.id
    third = ask(client, "And of Spain?", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens


def test_answers_can_be_asked_for_again_and_let_go(client: openai.OpenAI) -> None:
    answer = ask(client, max_output_tokens=3)
    again = client.responses.retrieve(answer.id)
    assert again.to_dict() == answer.to_dict()
    client.responses.delete(answer.id)
    for use in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            use(answer.id)
    hidden = ask(client, max_output_tokens=3, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(hidden.id)
    with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
        ask(client, previous_response_id=hidden.id)


@pytest.mark.parametrize("stream", [False, True])
def test_functions_are_called_where_they_must_be(client: openai.OpenAI, stream: bool) -> None:
    fields = {
        "tools": [WEATHER, TIME], "tool_choice": "required", "temperature": 1.2,
        "max_output_tokens": 200, "extra_body": {"seed": 4},
    }  # fmt: skip
    schemas = {tool["name"]: tool["parameters"] for tool in (WEATHER, TIME)}
    if stream:
        events = list(ask(client, stream=True, **fields))
        done = [event for event in events if event.type.endswith("arguments.done")]
        deltas = [event for event in events if event.type.endswith("arguments.delta")]
        assert "".join(event.delta for event in deltas) == "".join(one.arguments for one in done)
        answer = events[-1].response
    else:
        answer = ask(client, **fields)
    assert answer.status == "completed"
    assert answer.output
    for item in answer.output:
        assert (item.type, item.status) == ("function_call", "completed")
        assert item.call_id.startswith("call_")
        jsonschema.validate(json.loads(item.arguments), schemas[item.name])


def test_a_named_function_and_only_one(client: openai.OpenAI) -> None:
    choice = {"type": "function", "name": "get_time"}
    (item,) = ask(client, tools=[WEATHER, TIME], tool_choice=choice).output
    assert (item.name, item.arguments) == ("get_time", "{}")
    fields = {"tools": [WEATHER, TIME], "tool_choice": "required", "parallel_tool_calls": False}
    answer = ask(client, **fields, temperature=1.5, max_output_tokens=200)
    assert len(answer.output) == 1
    assert answer.parallel_tool_calls is False
    assert ask(client, tools=[WEATHER], tool_choice="none").output_text == ANSWER
    assert ask(client, tools=[WEATHER], tool_choice="auto").tools[0].name == "get_weather"


def test_results_of_functions_are_read(client: openai.OpenAI) -> None:
    choice = {"type": "function", "name": "get_time"}
    first = ask(client, tools=[TIME], tool_choice=choice)
    (call,) = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "It is noon."}
    after = ask(client, [result], tools=[TIME], previous_response_id=first.id)
    thoughts = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "The time."}],
    }
    items = [{"role": "user", "content": QUESTION}, thoughts, call.model_dump(), result]
    same = ask(client, items, tools=[TIME])
    assert same.usage.input_tokens == after.usage.input_tokens
    assert after.usage.input_tokens > first.usage.input_tokens
    assert same.output_text == after.output_text


class City(BaseModel):
    """What is to come back."""

    name: str
    large: bool


def test_answers_have_the_form_asked_for(client: openai.OpenAI) -> None:
    said = "Paris as JSON with name and large"
    parsed = client.responses.parse(
        model="any", input=said, text_format=City, max_output_tokens=60, temperature=0
    )
    assert isinstance(parsed.output_parsed, City)
    form = {"format": {"type": "json_schema", "name": "c", "schema": City.model_json_schema()}}
    answer = ask(client, said, text=form, max_output_tokens=60)
    City.model_validate_json(answer.output_text)
    assert answer.text.format.type == "json_schema"
    either = ask(client, said, text=form, tools=[TIME], max_output_tokens=60)
    for item in either.output:  # a call, or an answer of that form
        if item.type == "message":
            City.model_validate_json(item.content[0].text)
    anything = ask(client, said, text={"format": {"type": "json_object"}}, max_output_tokens=200)
    assert anything.output_text.startswith("{")
    assert ask(client, text={"format": {"type": "text"}}).output_text == ANSWER
    assert ask(client, reasoning={"effort": "low"}).reasoning.effort == "low"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"type": "computer_call"}]}, "computer_call"),
        ({"input": [{"type": "message", "role": "user"}]}, "content"),
        ({"input": [{"type": "message", "content": "a"}]}, "role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "a"}]}, "call_id"),
        ({"tools": [{"type": "web_search"}]}, "web_search"),
        ({"tools": [{"type": "function"}]}, "name"),
        ({"tools": [TIME], "tool_choice": {"type": "function", "name": "nobody"}}, "nobody"),
        ({"tool_choice": "required"}, "tool"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "schema"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"top_logprobs": 2}, "/v1/chat/completions"),
        ({"include": ["message.output_text.logprobs"]}, "/v1/chat/completions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"input": "word " * 3000}, "context"),
    ],
)
def test_what_is_wrong_is_said(client: openai.OpenAI, fields: dict[str, object], said: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/responses", body={"input": QUESTION, **fields}, cast_to=object)
    assert said in refused.value.message
    assert refused.value.type == "invalid_request_error"
