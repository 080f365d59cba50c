"""Requests whose tools of MCP servers the server runs: rounds, approvals, limits, streams.

The model is scripted (scripted_gguf.py): it calls `get_weather` when it is asked for the weather,
and answers when it reads a result.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import asgi_client
from openai import OpenAI
from scripted import events_in
from serving import PATIENCE, serving

from ingot import LLM
from ingot.server.mcp_config import McpCommand, McpServerConfig
from scripted_gguf import tool_call, write_scripted_gguf

PLAIN = McpCommand(sys.executable, ("-S", str(Path(__file__).with_name("mcp_plain.py"))))
SERVER = McpServerConfig("plain", PLAIN)
WEATHER = "What is the weather?"
SUNNY = "It is sunny."
CALL = tool_call("get_weather", city="Rome")
SCRIPTS = {
    "tool: sunny in Rome": SUNNY,
    "tool: sunny in None": CALL,
    "not allow": "As you like.",
    "tool: ": "It failed.",
    "weather": CALL,
    "both": f"I look.\n{CALL}\n{tool_call('mine')}",
    "twice": f"{CALL}\n{CALL}",
    "prefixed": tool_call("plain__get_weather", city="Rome"),
    "loop": tool_call("get_weather"),
    "die": tool_call("flood_line"),
}
Ask = Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]
NEVER = {"type": "mcp", "server_label": "plain", "require_approval": "never"}
ALWAYS = {"type": "mcp", "server_label": "plain"}
MINE = {"name": "mine", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rounds") / "scripted.gguf"
    return write_scripted_gguf(path, SCRIPTS, otherwise="Hello.", context=8192, whole=("weather",))


def with_server(model: Path, ask: Ask, *servers: McpServerConfig, **options: object) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            served = {"sampling": {"temperature": 0}}
            async with asgi_client(
                model, served, mcp_servers=servers or (SERVER,), **options
            ) as client:
                await ask(client)

    asyncio.run(run())


async def chat(client: httpx.AsyncClient, text: str, *tools: object, **fields: Any) -> Any:
    messages = fields.pop("messages", [{"role": "user", "content": text}])
    body = {"messages": messages, "tools": tools or [NEVER], **fields}
    answer = await client.post("/v1/chat/completions", json=body, timeout=PATIENCE)
    return events_in(answer.text) if fields.get("stream") else answer.json()


async def respond(client: httpx.AsyncClient, given: object, *tools: object, **fields: Any) -> Any:
    body = {"input": given, "tools": tools or [NEVER], **fields}
    answer = await client.post("/v1/responses", json=body, timeout=PATIENCE)
    return events_in(answer.text) if fields.get("stream") else answer.json()


RAN = {
    "server_label": "plain",
    "name": "get_weather",
    "arguments": '{"city": "Rome"}',
    "status": "completed",
    "output": "sunny in Rome",
    "error": None,
}


def without_id(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "id"}


def test_a_chat_runs_tools_until_the_model_answers(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        answer = await chat(client, WEATHER)
        (choice,) = answer["choices"]
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"] == SUNNY
        (ran,) = choice["message"]["mcp_calls"]
        assert without_id(ran) == RAN
        one = await client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": WEATHER}]}
        )
        assert answer["usage"]["prompt_tokens"] > one.json()["usage"]["prompt_tokens"] * 2
        named = {"type": "function", "function": {"name": "get_weather"}}
        for chosen in ("required", named):
            forced = await chat(client, WEATHER, tool_choice=chosen)
            assert forced["choices"][0]["message"]["content"] == SUNNY
        twice = (await chat(client, "twice"))["choices"][0]["message"]
        assert [each["output"] for each in twice["mcp_calls"]] == ["sunny in Rome"] * 2
        # The message may be sent back: its calls are part of the conversation.
        said = [{"role": "user", "content": WEATHER}, choice["message"]]
        more = [*said, {"role": "user", "content": "x"}]
        told = await client.post("/apply-template", json={"messages": more})
        assert "tool: sunny in Rome" in told.json()["prompt"]
        assert told.json()["prompt"].count("get_weather") == 1

    with_server(model, ask)


def test_warnings_are_not_repeated_in_every_round(model: Path) -> None:
    strict = {"type": "function", "function": {**MINE, "strict": True}}
    with LLM(model, threads=1) as llm:
        source = llm.chat_template.source.replace("<tool_call>", "")  # calls are plain JSON then

    async def ask() -> None:
        served = {"chat_template": source, "sampling": {"temperature": 0}}
        async with asgi_client(model, served, mcp_servers=(SERVER,)) as client:
            answer = await chat(client, WEATHER, NEVER, strict)
        assert len(answer["choices"][0]["message"]["mcp_calls"]) == 1
        (warning,) = answer["warnings"]
        assert "'strict' of the tool 'mine' was ignored" in warning

    asyncio.run(ask())


def test_a_chat_streams_calls_and_their_results(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        events = await chat(client, WEATHER, stream=True, stream_options={"include_usage": True})
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == SUNNY
        begun, ended = (delta["mcp_calls"][0] for delta in deltas if "mcp_calls" in delta)
        assert begun["status"] == "in_progress"
        assert begun["id"] == ended["id"]
        assert without_id(ended) == RAN
        assert not any("tool_calls" in delta for delta in deltas)
        assert events[-2]["choices"][0]["finish_reason"] == "stop"
        assert events[-1]["usage"]["completion_tokens"] >= 5

    with_server(model, ask)


def test_calls_that_need_approval_and_functions_go_to_the_client(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        asked = (await chat(client, WEATHER, ALWAYS))["choices"][0]
        assert asked["finish_reason"] == "tool_calls"
        (call,) = asked["message"]["tool_calls"]
        assert call["mcp"] == {"server": "plain", "tool": "get_weather"}
        assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Rome"}'}
        function = {"type": "function", "function": MINE}
        both = (await chat(client, "both", NEVER, function))["choices"][0]
        assert both["finish_reason"] == "tool_calls"
        assert both["message"]["content"] == "I look."
        assert [each["function"]["name"] for each in both["message"]["tool_calls"]] == ["mine"]
        assert [without_id(each) for each in both["message"]["mcp_calls"]] == [RAN]
        events = await chat(client, "both", NEVER, function, stream=True)
        deltas = [event["choices"][0]["delta"] for event in events]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        assert calls[0]["index"] == 0
        assert calls[0]["function"]["name"] == "mine"
        some = {**ALWAYS, "require_approval": {"never": {"tool_names": ["get_weather"]}}}
        assert (await chat(client, WEATHER, some))["choices"][0]["message"]["content"] == SUNNY
        other = {**ALWAYS, "require_approval": {"never": {"tool_names": ["rename"]}}}
        assert (await chat(client, WEATHER, other))["choices"][0]["finish_reason"] == "tool_calls"

    with_server(model, ask)


def test_a_tool_whose_name_is_taken_gets_its_servers_name(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        function = {"type": "function", "function": {**MINE, "name": "get_weather"}}
        answer = (await chat(client, "prefixed", NEVER, function))["choices"][0]["message"]
        assert answer["content"] == SUNNY
        assert without_id(answer["mcp_calls"][0]) == RAN

    with_server(model, ask)


def test_tools_can_be_chosen(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        one = {**NEVER, "allowed_tools": ["rename"]}
        messages = [{"role": "user", "content": "hi"}]
        counted = []
        for tools in ([one], [NEVER]):
            body = {"messages": messages, "tools": tools}
            answer = await client.post("/v1/chat/completions/input_tokens", json=body)
            counted.append(answer.json()["input_tokens"])
        assert counted[0] < counted[1] / 2
        unread = {**NEVER, "allowed_tools": {"read_only": True}}
        body = {"messages": messages, "tools": [unread]}
        answer = await client.post("/v1/chat/completions/input_tokens", json=body)
        assert answer.json()["input_tokens"] < counted[0]

    with_server(model, ask)


def test_what_cannot_be_done_is_refused(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"tools": [{**NEVER, "server_label": "nobody"}]}, "there is no MCP server"),
            ({"tools": [{**NEVER, "server_url": "http://x"}]}, "leave it out"),
            ({"tools": [{"type": "mcp"}]}, "server_label"),
            ({"tools": [NEVER, NEVER]}, "twice"),
            ({"tools": [{**NEVER, "require_approval": {"never": {"read_only": True}}}]}, "needs"),
        ]
        chats: list[tuple[dict[str, Any], str]] = [
            ({"tools": [NEVER], "n": 2}, "n cannot"),
            ({"tools": [NEVER], "logprobs": True}, "logprobs cannot"),
        ]
        messages = [{"role": "user", "content": "hi"}]
        for fields, reason in [*wrong, *chats]:
            body = {"messages": messages, **fields}
            refused = await client.post("/v1/chat/completions", json=body)
            assert refused.status_code == 400, fields
            assert reason in refused.json()["error"]["message"]
        for fields, reason in wrong:
            refused = await client.post("/v1/responses", json={"input": "hi", **fields})
            assert refused.status_code == 400
            assert reason in refused.json()["error"]["message"]
        refused = await client.post(
            "/apply-template", json={"messages": messages, "tools": [NEVER]}
        )
        assert refused.status_code == 400

    with_server(model, ask)


def test_without_mcp_its_tools_are_refused(model: Path) -> None:
    async def run() -> None:
        async with asgi_client(model) as client:
            told = await chat(client, "hi")
            assert "--mcp-config" in told["error"]["message"]

    asyncio.run(run())


def test_rounds_and_calls_are_limited_and_the_model_still_answers(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        limited = await chat(client, "loop")
        message = limited["choices"][0]["message"]
        assert [each["output"] for each in message["mcp_calls"]] == ["sunny in None"]
        assert "limited" in limited["warnings"][0]
        few = await chat(client, "twice", max_tool_calls=1)
        first, second = few["choices"][0]["message"]["mcp_calls"]
        assert (first["status"], second["status"]) == ("completed", "failed")
        assert "no more tool calls" in second["error"]

    with_server(model, ask, mcp_rounds=1)


def test_a_tool_that_breaks_is_told_to_the_model(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        message = (await chat(client, "die"))["choices"][0]["message"]
        assert message["content"] == "It failed."
        (ran,) = message["mcp_calls"]
        assert ran["status"] == "failed"
        assert "4 MiB" in ran["error"]
        late = await respond(client, WEATHER)  # the server is down for some seconds
        assert late["error"]["code"] == "mcp_unavailable"

    with_server(model, ask)


def test_a_response_runs_tools_until_the_model_answers(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        answer = await respond(client, WEATHER)
        listed, called, said = answer["output"]
        assert (listed["type"], listed["server_label"]) == ("mcp_list_tools", "plain")
        assert "get_weather" in [tool["name"] for tool in listed["tools"]]
        assert {**RAN, "type": "mcp_call"}.items() <= called.items()
        assert said["content"][0]["text"] == SUNNY
        assert answer["status"] == "completed"
        more = await respond(client, "hi", previous_response_id=answer["id"])
        assert [item["type"] for item in more["output"]] == ["message"]
        both = await respond(client, "both", NEVER, {"type": "function", **MINE})
        kinds = [item["type"] for item in both["output"]]
        assert kinds == ["mcp_list_tools", "message", "mcp_call", "function_call"]
        cut = await respond(client, WEATHER, max_output_tokens=1, grammar='root ::= "<tool_call>"')
        assert cut["status"] == "incomplete"

    with_server(model, ask)


def test_a_response_streams_calls_and_their_results(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        events = await respond(client, WEATHER, stream=True)
        kinds = [event["type"].removeprefix("response.") for event in events]
        order = (
            "created",
            "mcp_list_tools.completed",
            "mcp_call_arguments.done",
            "mcp_call.in_progress",
            "mcp_call.completed",
            "output_text.done",
            "completed",
        )
        places = [kinds.index(kind) for kind in order]
        assert places == sorted(places)
        assert kinds[-1] == "completed"
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert [item["type"] for item in done] == ["mcp_list_tools", "mcp_call", "message"]
        assert {**RAN, "type": "mcp_call"}.items() <= done[1].items()
        assert done == events[-1]["response"]["output"]

    with_server(model, ask)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("approve", [False, True])
def test_a_response_asks_for_approval(model: Path, approve: bool, stream: bool) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        def ended(answer: Any) -> dict[str, Any]:
            return answer[-1]["response"] if stream else answer

        first = ended(await respond(client, WEATHER, ALWAYS, stream=stream))
        asked = first["output"][-1]
        assert asked["type"] == "mcp_approval_request"
        assert (asked["name"], asked["arguments"]) == ("get_weather", '{"city": "Rome"}')
        reply = {"type": "mcp_approval_response", "approval_request_id": asked["id"]}
        given = [{**reply, "approve": approve}]
        second = ended(
            await respond(client, given, ALWAYS, previous_response_id=first["id"], stream=stream)
        )
        said = second["output"][-1]["content"][0]["text"]
        if not approve:
            assert said == "As you like."
            return
        assert said == SUNNY
        ran = second["output"][0]
        assert ran["approval_request_id"] == asked["id"]
        assert {**RAN, "type": "mcp_call"}.items() <= ran.items()
        # What was approved once runs once.
        third = ended(
            await respond(client, "hi", ALWAYS, previous_response_id=second["id"], stream=stream)
        )
        assert [item["type"] for item in third["output"]] == ["message"]

    with_server(model, ask)


def test_clients_of_a_real_server_run_tools_and_cancel_them_by_going_away(tmp_path: Path) -> None:
    file = tmp_path / "call"
    wait = tool_call("wait", file=str(file))
    scripts = {"wait": wait, "tool: sunny": SUNNY, "weather": CALL}
    model = write_scripted_gguf(tmp_path / "m.gguf", scripts, context=8192)
    command = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_tools.py"))]}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"tools": command}}))
    tools = [{**NEVER, "server_label": "tools"}]
    with serving(model, "--mcp-config", config, "--temp", 0) as served:
        served.logged("MCP server tools: ")
        openai = OpenAI(base_url=f"{served.url}/v1", api_key="none")
        answer = openai.responses.create(model="any", input=WEATHER, tools=tools)
        assert [item.type for item in answer.output] == ["mcp_list_tools", "mcp_call", "message"]
        assert (answer.output[1].output, answer.output_text) == ("sunny in Rome", SUNNY)
        with openai.responses.stream(model="any", input=WEATHER, tools=tools) as events:
            kinds = {event.type for event in events}
        assert {"response.mcp_call.completed", "response.completed"} <= kinds
        for stream in (False, True):
            messages = [{"role": "user", "content": "wait"}]
            body = {"messages": messages, "tools": tools, "stream": stream}
            connection = HTTPConnection(served.url.removeprefix("http://"))
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            until(file.exists)  # the call has begun
            if stream:
                assert connection.getresponse().status == 200
            connection.close()
            until(lambda: file.read_text() == "cancelled\n")
            file.unlink()
        assert httpx.get(f"{served.url}/health", timeout=PATIENCE).status_code == 200


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)
