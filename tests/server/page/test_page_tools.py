"""Tools in a browser: calls are shown, nothing runs without consent, results go to the model."""

import pytest

pytest.importorskip("playwright", reason="Playwright is not here: pip install playwright==1.65.0")

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_server import FakeServer
from playwright.sync_api import Page, expect
from steps import answers, ask, wait_for_end

pytestmark = pytest.mark.oracle

Shoot = Callable[[Page, str], None]
Visit = Callable[..., Page]
OWN = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}


def mcp_server(name: str, *tools: str) -> dict[str, Any]:
    listed = [
        {"name": tool, "description": f"Use {tool}.", "input_schema": {"type": "object"}}
        for tool in tools
    ]
    state = {"name": name, "transport": "stdio", "state": "ready", "error": None}
    return state | {"tools": listed}


def describe_tools(page: Page, text: str) -> None:
    page.click(".header [data-toggle=settings]")
    page.fill("#tools", text)
    page.press("#tools", "Tab")
    page.click(".settings-head button")


def use_servers(page: Page, *names: str) -> None:
    page.click(".header [data-toggle=settings]")
    for name in names:
        page.locator("#mcp").get_by_label(name).check()
    page.click(".settings-head button")


def test_the_user_types_in_a_result(page: Page, fake: FakeServer, shoot: Shoot) -> None:
    describe_tools(page, json.dumps([OWN]))
    ask(page, "Use your tools")
    assert fake.bodies[-1]["tools"] == [{"type": "function", "function": OWN}]
    call = page.locator(".call")
    expect(call.locator("h2")).to_contain_text("get_weather")
    expect(call.locator("pre")).to_have_text('{\n  "city": "Bonn"\n}')
    expect(call).to_contain_text("waits for you")
    shoot(page, "call-light")
    call.get_by_label("Result of get_weather").fill("12 degrees")
    call.get_by_role("button", name="Send result").click()
    expect(answers(page).last).to_have_text("You said: 12 degrees")
    made = {"name": "get_weather", "arguments": '{"city": "Bonn"}'}
    assert fake.bodies[-1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_0", "type": "function", "function": made}],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "12 degrees"},
    ]
    page.reload()
    page.locator(".call-result summary").click()
    expect(page.locator(".call-result pre")).to_have_text("12 degrees")


def test_tools_that_are_not_valid_are_explained(page: Page, fake: FakeServer) -> None:
    page.click(".header [data-toggle=settings]")
    page.fill("#tools", "[{]")
    expect(page.locator("#tools-problem")).to_contain_text("not JSON")
    page.fill("#tools", "[{}]")
    expect(page.locator("#tools-problem")).to_contain_text("no name")
    page.press("#tools", "Tab")
    ask(page, "Use your tools")
    expect(page.locator(".notice:visible")).to_contain_text("has no name")
    assert not fake.bodies


def test_an_mcp_tool_runs_only_after_consent(visit: Visit, fake: FakeServer, shoot: Shoot) -> None:
    fake.mcp = [mcp_server("weather", "forecast"), mcp_server("files", "read_file")]
    page = visit(fake.url)
    ask(page, "No tools yet")
    assert "tools" not in fake.bodies[-1]  # no server is used before it is chosen
    use_servers(page, "weather")
    ask(page, "Use your tools")
    call = page.locator(".call")
    expect(call).to_contain_text("Run this at the MCP server weather?")
    shoot(page, "consent-light")
    assert not fake.tool_calls
    call.get_by_role("button", name="Allow once").click()
    expect(answers(page).last).to_have_text("You said: forecast says 12 degrees")
    made = {"server": "weather", "tool": "forecast", "arguments": {"city": "Bonn"}}
    assert fake.tool_calls == [made]
    ask(page, "Use your tools again")
    last = page.locator(".call").last
    last.get_by_role("button", name="Always allow in this conversation").click()
    expect(answers(page).last).to_have_text("You said: forecast says 12 degrees")
    ask(page, "Use your tools once more")
    expect(page.locator(".call")).to_have_count(3)
    expect(answers(page).last).to_have_text("You said: forecast says 12 degrees")
    assert fake.tool_calls == [made] * 3
    page.click(".new-button")
    ask(page, "Use your tools")
    expect(page.locator(".call")).to_contain_text("Run this at the MCP server weather?")
    assert len(fake.tool_calls) == 3  # another conversation asks again


def test_a_refused_call_is_told_to_the_model(visit: Visit, fake: FakeServer) -> None:
    fake.mcp = [mcp_server("one", "search"), mcp_server("two", "search")]
    page = visit(fake.url)
    use_servers(page, "one", "two")
    ask(page, "Use your tools")
    assert [tool["function"]["name"] for tool in fake.bodies[-1]["tools"]] == [
        "one_search",
        "two_search",
    ]
    calls = page.locator(".call")
    expect(calls).to_have_count(2)
    calls.first.get_by_role("button", name="Refuse").click()
    expect(calls.first.locator("summary")).to_have_text("Error")
    calls.last.get_by_role("button", name="Allow once").click()
    wait_for_end(page)
    expect(answers(page).last).to_contain_text("search says 12 degrees")
    results = [one["content"] for one in fake.bodies[-1]["messages"] if one["role"] == "tool"]
    assert results == ["The user refused this call.", "search says 12 degrees"]
    assert [call["server"] for call in fake.tool_calls] == ["two"]


def test_an_imported_conversation_asks_again(
    visit: Visit, fake: FakeServer, tmp_path: Path
) -> None:
    fake.mcp = [mcp_server("weather", "forecast")]
    page = visit(fake.url)
    root = {"id": "root", "parent": None, "role": "root", "children": ["a"], "chosen": "a"}
    first = {"id": "a", "parent": "root", "role": "user", "children": [], "chosen": None}
    record = {"id": "x", "title": "Trojan", "named": True, "settings": {"mcp": ["weather"]}}
    record |= {"nodes": {"root": root, "a": first | {"content": "hello"}}}
    file = tmp_path / "x.json"
    file.write_text(json.dumps(record | {"allowed": ["weather/forecast"]}))
    page.set_input_files("#import-file", file)
    expect(page.locator("#title")).to_have_text("Trojan")
    ask(page, "Use your tools")
    expect(page.locator(".call")).to_contain_text("Run this at the MCP server weather?")
    assert not fake.tool_calls


def test_without_mcp_nothing_of_it_is_shown(page: Page) -> None:
    page.click(".header [data-toggle=settings]")
    expect(page.locator("#tools")).to_be_visible()
    expect(page.locator("#mcp")).to_be_hidden()
