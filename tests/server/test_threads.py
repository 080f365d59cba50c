"""`thread` at `/v1/messages`: the server holds a conversation, the client sends what is new."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Ask, events_in, scripted_server

from scripted_gguf import tool_call, write_scripted_gguf

Served = Callable[[Ask], Any]
TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    scripts = {"tool: sunny": "It is sunny.", "weather": tool_call("get_weather")}
    path = write_scripted_gguf(tmp_path_factory.mktemp("threads") / "model.gguf", scripts)
    with scripted_server(path) as server:
        yield server


def post(served: Served, status: int = 200, **body: object) -> Any:
    response = served(lambda http: http.post("/v1/messages", json={"max_tokens": 100, **body}))
    assert response.status_code == status, response.text
    return events_in(response.text) if body.get("stream") else response.json()


@pytest.mark.parametrize("stream", [False, True])
def test_a_thread_goes_on_with_its_messages_and_tools(served: Served, stream: bool) -> None:
    first = post(
        served,
        messages=[{"role": "user", "content": "The weather?"}],
        tools=[TOOL],
        thread={"type": "create"},
        stream=stream,
    )
    if stream:
        id = first[0]["message"]["id"]
        call = next(each for each in first if each["type"] == "content_block_start")
        call_id = call["content_block"]["id"]
    else:
        id, call_id = first["id"], first["content"][0]["id"]
    result = {"type": "tool_result", "tool_use_id": call_id, "content": "sunny"}
    thread = {"type": "continue", "previous_message_id": id}
    second = post(served, messages=[{"role": "user", "content": [result]}], thread=thread)
    assert second["content"] == [{"type": "text", "text": "It is sunny."}]
    whole = post(
        served,
        messages=[
            {"role": "user", "content": "The weather?"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "get_weather", "input": {}}],
            },
            {"role": "user", "content": [{**result, "tool_use_id": "1"}]},
        ],
        tools=[TOOL],
    )

    def read(message: Any) -> int:
        usage = message["usage"]
        return int(usage["input_tokens"] + usage["cache_read_input_tokens"])

    # The ids of calls are part of this model's prompts.
    assert read(second) - read(whole) == len(call_id) - 1


def test_a_thread_that_is_gone_is_said_in_anthropic_s_words(served: Served) -> None:
    thread = {"type": "continue", "previous_message_id": "msg_none"}
    lost = post(served, 404, messages=[{"role": "user", "content": "?"}], thread=thread)
    assert lost["error"]["type"] == "not_found_error"
    assert lost["error"]["details"] == {"error_code": "thread_not_found"}


def test_programs_need_not_say_that_a_body_of_ollama_s_api_is_json(served: Served) -> None:
    content = b'{"model": "any", "prompt": "Hi", "stream": false}'
    for headers in ({}, {"content-type": "application/x-www-form-urlencoded"}):  # as curl -d sends

        def ask(where: str, headers: dict[str, str] = headers, **more: str) -> tuple[int, str]:
            given = {**headers, **more}
            response = served(lambda http: http.post(where, content=content, headers=given))
            return response.status_code, response.text

        assert ask("/api/generate")[0] == 200
        assert ask("/api/generate", referer="http://localhost/")[0] == 400
        assert ask("/v1/completions")[0] == 400
