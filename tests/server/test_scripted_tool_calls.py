"""Tool calls in every form that models write them, whole and cut off, at each API.

The texts are given (scripted.py); the chat template is Qwen2.5's, whose calls have tags.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted import Ask, events_in, script, scripted_model, scripted_server

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "parameters": PARAMETERS}
CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
FORMS = {
    "bare": CALL,
    "bare list": f"[{CALL}]",
    "fenced": f"```json\n{CALL}\n```",
    "fenced after words": f"I look.\n```json\n{CALL}\n```",
    "tagged": f"<tool_call>\n{CALL}\n</tool_call>",
    "other tags": f"<tools>\n{CALL}\n</tools>",
    "as OpenAI writes it": f'{{"type": "function", "function": {CALL}}}',
}


@dataclass
class Said:
    """What an answer says, whatever its API."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    end: str = ""

    def add(self, name: str | None, arguments: str) -> None:
        """Begin a call, or continue the last one."""
        if name is not None:
            self.calls.append((name, arguments))
        else:
            last, before = self.calls[-1]
            self.calls[-1] = (last, before + arguments)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Ask], Any]]:
    model = scripted_model(tmp_path_factory.mktemp("scripted"), "qwen2_5")
    with scripted_server(model) as server:
        yield server


async def chat(client: httpx.AsyncClient, **fields: object) -> Said:
    tools = [{"type": "function", "function": FUNCTION}]
    body = {"messages": [{"role": "user", "content": "?"}], "tools": tools, **fields}
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    if not fields.get("stream"):
        (choice,) = response.json()["choices"]
        message = choice["message"]
        called = [call["function"] for call in message.get("tool_calls", ())]
        calls = [(call["name"], call["arguments"]) for call in called]
        return Said(message["content"] or "", calls, choice["finish_reason"])
    said = Said()
    events = events_in(response.text)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    for event in events:
        (choice,) = event["choices"]
        said.text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            said.add(call["function"].get("name"), call["function"]["arguments"])
        said.end = choice["finish_reason"] or said.end
    return said


async def messages(client: httpx.AsyncClient, **fields: object) -> Said:
    tool = {"name": "get_weather", "input_schema": PARAMETERS}
    body = {"messages": [{"role": "user", "content": "?"}], "tools": [tool], **fields}
    response = await client.post("/v1/messages", json={"max_tokens": 200, **body})
    assert response.status_code == 200, response.text
    said = Said()
    if not fields.get("stream"):
        message = response.json()
        for block in message["content"]:
            if block["type"] == "text":
                said.text += block["text"]
            else:
                said.add(block["name"], json.dumps(block["input"]))
        said.end = message["stop_reason"]
        return said
    for event in events_in(response.text):
        match event["type"]:
            case "content_block_start" if event["content_block"]["type"] == "tool_use":
                said.add(event["content_block"]["name"], "")
            case "content_block_delta" if "text" in event["delta"]:
                said.text += event["delta"]["text"]
            case "content_block_delta":
                said.add(None, event["delta"]["partial_json"])
            case "message_delta":
                said.end = event["delta"]["stop_reason"]
    return said


async def responses(client: httpx.AsyncClient, **fields: object) -> Said:
    body: dict[str, Any] = {"input": "?", "tools": [{"type": "function", **FUNCTION}], **fields}
    if "max_tokens" in body:
        body["max_output_tokens"] = body.pop("max_tokens")
    response = await client.post("/v1/responses", json=body)
    assert response.status_code == 200, response.text
    if not fields.get("stream"):
        answer = response.json()
    else:
        answer = events_in(response.text)[-1]["response"]
    said = Said(end=answer["status"])
    for item in answer["output"]:
        if item["type"] == "message":
            said.text += item["content"][0]["text"]
        else:
            said.add(item["name"], item["arguments"])
            assert item["status"] == answer["status"]
    return said


# Each API, and what it says of a call and of a text that a limit cut off.
APIS = [
    (chat, "tool_calls", "length"),
    (messages, "tool_use", "max_tokens"),
    (responses, "completed", "incomplete"),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_found_in_every_api(served: Callable[[Ask], Any], form: str) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        words = "I look." if "words" in form else ""
        for api, end, _ in APIS:
            for stream in (False, True):
                said = await api(client, **script(FORMS[form]), stream=stream)
                assert said == Said(words, [("get_weather", '{"city": "Rome"}')], end)

    served(ask)


@pytest.mark.parametrize("form", ["bare", "fenced", "tagged"])
def test_a_call_that_is_cut_off_says_so_and_leaks_nothing(
    served: Callable[[Ask], Any], form: str
) -> None:
    text = FORMS[form]
    begun = text.index('{"city"') + 1
    complete = text.index('"}') + 2  # the end of the arguments

    async def ask(client: httpx.AsyncClient) -> None:
        for tokens in (1, 4, begun - 2, begun + 4, complete, complete + 1, len(text) - 1):
            for api, _, end in APIS:
                for stream in (False, True):
                    fields = {**script(text), "max_tokens": tokens, "stream": stream}
                    said = await api(client, **fields)
                    assert (said.text, said.end) == ("", end), (tokens, said)
                    for _, arguments in said.calls:
                        assert '{"city": "Rome"}'.startswith(arguments)
                    if api is messages and not stream:
                        assert bool(said.calls) is (tokens >= complete)

    served(ask)


def test_text_that_only_looks_like_a_call_is_the_answer(served: Callable[[Ask], Any]) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for text in ('{"name": "Rome"}', '```json\n{"city": "Rome"}\n```', "[1]", "a {b}\n[c](d)"):
            for api, _, _ in APIS:
                for stream in (False, True):
                    said = await api(client, **script(text), stream=stream)
                    assert (said.text, said.calls) == (text, [])

    served(ask)


@pytest.mark.parametrize(("family", "is_enforced"), [("qwen2_5", True), ("llama3", False)])
def test_strict_tools_are_enforced_or_a_warning_says_why_not(
    tmp_path: Path, family: str, is_enforced: bool
) -> None:
    function = {**FUNCTION, "strict": True}
    body = {
        "messages": [{"role": "user", "content": "?"}],
        "tools": [{"type": "function", "function": function}],
        "max_tokens": 2,
    }
    where = "/v1/chat/completions"
    with scripted_server(scripted_model(tmp_path, family)) as served:
        answer = served(lambda client: client.post(where, json=body)).json()
        assert ("warnings" not in answer) is is_enforced
        if not is_enforced:
            assert "'strict' of the tool 'get_weather' was ignored" in answer["warnings"][0]
            forced = {**body, "tool_choice": "required"}
            assert "warnings" not in served(lambda client: client.post(where, json=forced)).json()
