"""Tool call formats of single model families, through the endpoints: forced, streamed, sent back.

The model is a tiny one with random weights and the chat templates of the families.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from in_process import asgi_client

from data.chat_templates.cases import families
from tiny_llama import write_tiny_llama

SOURCES = {family.name: family.source for family in families()}
FORMS = {
    "qwen3_coder": "<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>",
    "glm4_5": "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>",
    "minimax_m2": '<parameter name="city">Rome</parameter>\n<parameter name="days">2</parameter>',
    "kimi_k2": 'functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome", "days": 2}',
}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 99},
        "units": {"type": "array", "items": {"enum": ["C", "F"]}, "maxItems": 2},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
NOW = {"type": "function", "function": {"name": "now"}}
# The model is kept from thinking, since it would never come to an end.
OPENED = "ai\\n<think>\\n' -}}{%- endif"
NO_THINKING = {str(ord(letter)): -100 for letter in "th"}
QUESTION = {"role": "user", "content": "What is the weather in Rome?"}


@pytest.fixture(scope="module", params=FORMS)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def path(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(
        tmp_path_factory.mktemp("forms") / "tiny.gguf",
        template=SOURCES[family].replace(OPENED, OPENED.replace("<think>\\n", "")),
        keys={"llama.context_length": 4096},
    )


def asked(path: Path, ask: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
    async def answer() -> Any:
        async with asgi_client(path) as client:
            return await ask(client)

    return asyncio.run(answer())


def post(path: Path, where: str, **body: object) -> httpx.Response:
    response: httpx.Response = asked(path, lambda client: client.post(where, json=body))
    assert response.status_code == 200, response.text
    return response


def test_calls_are_forced_and_streamed(path: Path) -> None:
    for seed in range(3):
        body = {
            "messages": [QUESTION],
            "tools": [WEATHER, NOW],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "temperature": 1.0,
            "seed": seed,
            "max_tokens": 1000,
            "logit_bias": NO_THINKING,
        }
        choice = post(path, "/v1/chat/completions", **body).json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        schemas = {"get_weather": SCHEMA, "now": {"maxProperties": 0}}
        jsonschema.validate(json.loads(arguments), schemas[name])
        assert streamed(path, body) == (name, arguments)


def streamed(path: Path, body: dict[str, object]) -> tuple[str, str]:
    """The name and the arguments of a call that comes in pieces."""
    name = arguments = ""
    lines = post(path, "/v1/chat/completions", **body, stream=True).text.splitlines()
    for line in lines:
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            assert not choice["delta"].get("content")
            for call in choice["delta"].get("tool_calls", ()):
                name += call["function"].get("name", "")
                arguments += call["function"]["arguments"]
    return name, arguments


def test_the_other_endpoints_force_them_too(path: Path) -> None:
    message = post(
        path,
        "/v1/messages",
        messages=[QUESTION],
        tools=[{"name": "get_weather", "input_schema": SCHEMA}],
        tool_choice={"type": "tool", "name": "get_weather"},
        max_tokens=1000,
        logit_bias=NO_THINKING,
    ).json()
    (block,) = message["content"]
    assert (message["stop_reason"], block["name"]) == ("tool_use", "get_weather")
    jsonschema.validate(block["input"], SCHEMA)
    response = post(
        path,
        "/v1/responses",
        input="What is the weather in Rome?",
        tools=[{"type": "function", **WEATHER["function"]}],
        tool_choice={"type": "function", "name": "get_weather"},
        logit_bias=NO_THINKING,
    ).json()
    (item,) = response["output"]
    assert (item["type"], item["name"]) == ("function_call", "get_weather")
    jsonschema.validate(json.loads(item["arguments"]), SCHEMA)


def test_calls_are_sent_back(family: str, path: Path) -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Rome", "days": 2}'}
    call = {"id": "functions.get_weather:0", "type": "function", "function": function}
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.get_weather:0", "content": "Warm."},
    ]
    body = {"messages": messages, "tools": [WEATHER]}
    prompt = post(path, "/apply-template", **body).json()["prompt"]
    assert FORMS[family] in prompt
    answer = post(path, "/v1/chat/completions", **body, max_tokens=2).json()
    assert answer["usage"]["completion_tokens"] == 2


def test_schemas_that_no_call_can_be_held_to_are_refused(path: Path) -> None:
    odd = {"properties": {"city": {}}, "minProperties": 1, "additionalProperties": True}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": odd}}
    body = {"messages": [QUESTION], "tools": [tool], "tool_choice": "required", "max_tokens": 1}
    response = asked(path, lambda client: client.post("/v1/chat/completions", json=body))
    assert response.status_code == 400
    assert "Properties" in response.json()["error"]["message"]
