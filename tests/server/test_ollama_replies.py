"""What Ollama's client makes of given texts: tool calls, reasoning, logprobs, cut answers."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Ask, script, scripted_model, scripted_server
from test_reply_shapes import TEXT, Written, reader
from test_scripted_tool_calls import CALL, FORMS, FUNCTION

from ingot.server.errors import ApiError
from ingot.server.http.access_log import AccessRecord
from ingot.server.ollama.chat import ChatBody, ChatMessage, message_of
from ingot.server.ollama.options_body import keep_alive_seconds
from ingot.server.ollama.replies import LoadClock, Responder
from ingot.server.structured_outputs import FIELDS

ollama = pytest.importorskip("ollama", reason="ollama is not here: pip install '.[test]'")

TOOLS = [{"type": "function", "function": FUNCTION}]
Served = Callable[[Ask], Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with scripted_server(scripted_model(tmp_path_factory.mktemp("calls"), "qwen2_5")) as server:
        yield server


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with scripted_server(scripted_model(tmp_path_factory.mktemp("thinks"), "qwen3")) as server:
        yield server


def answers(served: Served, text: str, *, stream: bool, **fields: Any) -> list[Any]:
    """The responses to a question that the model answers with this text."""
    options = {**script(text), **fields.pop("options", {})}
    messages = fields.pop("messages", [{"role": "user", "content": "?"}])

    async def ask(http: Any) -> list[Any]:
        client = ollama.AsyncClient(host=str(http.base_url), transport=http._transport)
        given = await client.chat("any", messages, stream=stream, options=options, **fields)
        return [part async for part in given] if stream else [given]

    found: list[Any] = served(ask)
    return found


def content(parts: list[Any]) -> str:
    return "".join(part.message.content for part in parts)


def calls(parts: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    found = [call for part in parts for call in part.message.tool_calls or ()]
    return [(call.function.name, dict(call.function.arguments)) for call in found]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_tools_are_called(served: Served, form: str, stream: bool) -> None:
    parts = answers(served, FORMS[form], stream=stream, tools=TOOLS)
    assert calls(parts) == [("get_weather", {"city": "Rome"})]
    assert content(parts).strip() == ("I look." if "words" in form else "")
    assert parts[-1].done_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_two_calls_are_two(served: Served, stream: bool) -> None:
    both = f"{CALL}\n{CALL.replace('Rome', 'Oslo')}"
    cities = [
        given["city"] for _, given in calls(answers(served, both, stream=stream, tools=TOOLS))
    ]
    assert cities == ["Rome", "Oslo"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", [12, 30, 50])
def test_a_cut_call_is_no_call(served: Served, tokens: int, stream: bool) -> None:
    limit = {"num_predict": tokens}
    parts = answers(served, FORMS["tagged"], stream=stream, tools=TOOLS, options=limit)
    assert calls(parts) == []
    assert content(parts) == ""
    assert parts[-1].done_reason == "length"


def test_results_find_their_calls(served: Served) -> None:
    def call(city: str) -> dict[str, Any]:
        return {"function": {"name": "get_weather", "arguments": {"city": city}}}

    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": [call("Rome"), call("Oslo")]},
        {"role": "tool", "tool_name": "get_weather", "content": "21"},
        {"role": "tool", "content": "9"},
    ]
    parts = answers(served, "Warm.", stream=False, tools=TOOLS, messages=messages)
    assert content(parts) == "Warm."


def test_images_are_refused(served: Served) -> None:
    messages = [{"role": "user", "content": "?", "images": ["aGk="]}]
    with pytest.raises(ollama.ResponseError, match="only text") as error:
        answers(served, "x", stream=False, messages=messages)
    assert error.value.status_code == 400


@pytest.mark.parametrize("name", FIELDS)
def test_structured_outputs_that_are_no_options_are_refused(served: Served, name: str) -> None:
    for where, asked in (
        ("/api/chat", {"messages": [{"role": "user", "content": "?"}]}),
        ("/api/generate", {"prompt": "?"}),
    ):
        body = {"model": "any", **asked, name: "x"}
        response = served(lambda http, where=where, body=body: http.post(where, json=body))
        assert response.status_code == 400
        assert f"{name} is not supported here: put it in options" in response.json()["error"]


def written(text: str, error: Exception | None = None) -> list[dict[str, Any]]:
    """The lines of a stream, and the whole response, of a text that was written."""
    generation: Any = Written(text, error)
    generation.record = AccessRecord("1")
    body = ChatBody(model="reasoner", messages=[ChatMessage(role="user", content="?")])

    def responder() -> Responder:
        return Responder(generation, body, reader(), LoadClock(generation.record), message_of)

    async def both() -> list[dict[str, Any]]:
        lines = [json.loads(line) async for line in responder().lines()]
        return [*lines, await responder().whole()]

    return asyncio.run(both())


def test_reasoning_is_apart() -> None:
    *parts, last, whole = written(TEXT)
    messages = [part["message"] for part in parts]
    assert "".join(each.get("thinking", "") for each in messages) == "What time?"
    assert "".join(each["content"] for each in messages) == "I look."
    called = [call for each in messages for call in each.get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in called] == [{"zone": 1}] * 2
    assert [call["function"]["index"] for call in called] == [0, 1]
    assert last["done_reason"] == whole["done_reason"] == "stop"
    assert (last["prompt_eval_count"], last["eval_count"]) == (10, 5)
    assert last["eval_duration"] == last["prompt_eval_duration"] == 100_000_000
    assert (whole["message"]["thinking"], whole["message"]["content"]) == ("What time?", "I look.")
    assert len(whole["message"]["tool_calls"]) == 2


def test_an_error_ends_a_stream() -> None:
    *_, error, _ = written("Well", ApiError(503, "no memory"))
    assert error == {"error": "no memory"}


def test_thinking_can_be_switched_off(thinker: Served) -> None:
    on, off = (
        answers(thinker, "Yes.", stream=False, think=think, options={"num_predict": 1})[
            0
        ].prompt_eval_count
        for think in (True, False)
    )
    assert off > on  # Qwen3's template closes an empty block of reasoning


def test_a_model_says_that_it_thinks(thinker: Served) -> None:
    async def ask(http: Any) -> Any:
        return await ollama.AsyncClient(host="http://x", transport=http._transport).show("any")

    with pytest.raises(ollama.ResponseError, match="does not answer to the host name x"):
        thinker(ask)

    async def show(http: Any) -> Any:
        client = ollama.AsyncClient(host=str(http.base_url), transport=http._transport)
        return await client.show("any")

    assert thinker(show).capabilities == ["completion", "tools", "thinking"]


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_are_there_if_asked_for(served: Served, stream: bool) -> None:
    parts = answers(served, "abc", stream=stream, logprobs=True, top_logprobs=2)
    found = [entry for part in parts for entry in part.logprobs or ()]
    assert "".join(entry.token for entry in found) == "abc"
    assert [len(entry.top_logprobs) for entry in found] == [2, 2, 2]
    assert all(part.logprobs is None for part in answers(served, "abc", stream=stream))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, None), (300, 300), ("5m", 300), ("1h30m", 5400), ("90", 90), ("250ms", 0.25), (0, 0)],
)
def test_keep_alive_is_a_duration(given: float | str | None, seconds: float | None) -> None:
    assert keep_alive_seconds(given) == (float("inf") if seconds is None else seconds)


def test_a_negative_keep_alive_has_no_limit() -> None:
    assert keep_alive_seconds(-1) == keep_alive_seconds("-1m") == float("inf")
    for wrong in ("soon", "5 m", "", "m", "1" * 40):
        with pytest.raises(ApiError, match="keep_alive"):
            keep_alive_seconds(wrong)
