"""MCP servers: real processes and a real HTTP server, good ones and ones that misbehave."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_process import asgi_client
from mcp.shared.message import SessionMessage
from ports import quiet_port
from scripted import scripted_model
from serving import PATIENCE, serving, start

from ingot.errors import ConfigError
from ingot.server.mcp import stdio
from ingot.server.mcp.stdio import process_link
from ingot.server.mcp_config import McpCommand, McpServerConfig, McpUrl, read_mcp_config

TOOLS = Path(__file__).with_name("mcp_tools.py")
GOOD = McpServerConfig("good", McpCommand(sys.executable, (str(TOOLS),)))
PLAIN = McpCommand(sys.executable, ("-S", str(TOOLS.with_name("mcp_plain.py"))))
OTHER = McpServerConfig("other", PLAIN)  # which starts quickly
PING = '{"jsonrpc": "2.0", "method": "ping"}'
Ask = Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]


def program(name: str, code: str, **options: Any) -> McpServerConfig:
    """A server that runs some Python code."""
    return McpServerConfig(name, McpCommand(sys.executable, ("-c", code)), **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scripted_model(tmp_path_factory.mktemp("mcp"), "qwen2_5")


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that does not end by itself is soon made to."""
    monkeypatch.setattr(stdio, "_EXIT_SECONDS", 0.1)


def with_servers(model: Path, ask: Ask, *servers: McpServerConfig) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            async with asgi_client(model, mcp_servers=servers) as client:
                await ask(client)

    asyncio.run(run())


async def call(
    client: httpx.AsyncClient, tool: str, server: str = "good", **arguments: object
) -> httpx.Response:
    body = {"server": server, "tool": tool, "arguments": arguments}
    return await client.post("/mcp/call", json=body, timeout=PATIENCE)


async def weather(client: httpx.AsyncClient, server: str = "good") -> str:
    answer = await call(client, "get_weather", server, city="Rome")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


async def weather_at_last(client: httpx.AsyncClient, server: str) -> str:
    """The same of a server whose calls have little time, on a machine that does other things."""
    while (answer := await call(client, "get_weather", server, city="Rome")).status_code == 504:
        pass
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def test_mcp_is_off_by_default(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for response in (await client.get("/mcp/servers"), await call(client, "add")):
            assert response.status_code == 404
            assert "--mcp-config" in response.json()["error"]["message"]

    with_servers(model, ask)


def test_tools_are_listed_and_called(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        (before,) = (await client.get("/mcp/servers")).json()["data"]
        assert (before["state"], before["tools"]) == ("stopped", [])
        assert await weather(client) == "sunny in Rome"
        (info,) = (await client.get("/mcp/servers")).json()["data"]
        assert (info["name"], info["transport"], info["state"]) == ("good", "stdio", "ready")
        tools = {tool["name"]: tool for tool in info["tools"]}
        assert tools["get_weather"]["description"] == "Get the weather in a city."
        assert tools["get_weather"]["input_schema"]["required"] == ["city"]
        assert tools["get_weather"]["annotations"] == {"readOnlyHint": True}
        added = (await call(client, "add", a=2, b=3)).json()
        assert (added["text"], added["is_error"]) == ("5", False)
        assert added["structured_content"] == {"result": 5}
        assert added["content"] == [{"type": "text", "text": "5"}]
        failed = (await call(client, "fail")).json()
        assert failed["is_error"]
        assert "fail" in failed["text"]
        wrong = (await call(client, "add", a="x", b=3)).json()
        assert wrong["is_error"]
        for answer in (await call(client, "nothing"), await call(client, "add", "nobody")):
            assert answer.status_code == 404
        long = (await call(client, "long_text", characters=1 << 19)).json()
        assert long["is_error"]
        assert "524288 characters" in long["text"]

    with_servers(model, ask, GOOD)


def test_a_server_sees_only_the_environment_of_its_entry(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGOT_API_KEY", "secret")
    target = McpCommand(sys.executable, (str(TOOLS),), {"TOKEN": "t"})

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await call(client, "variable", name="TOKEN")).json()["text"] == "t"
        assert (await call(client, "variable", name="INGOT_API_KEY")).json()["text"] == ""

    with_servers(model, ask, McpServerConfig("good", target))


@pytest.fixture
def url() -> Iterator[str]:
    port = quiet_port()
    process = subprocess.Popen([sys.executable, TOOLS, str(port)], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/mcp")
                break
            except httpx.TransportError:
                assert time.monotonic() < end
                assert process.poll() is None
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def test_servers_at_urls(model: Path, url: str) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert await weather_at_last(client, "web") == "sunny in Rome"
        info = (await client.get("/mcp/servers")).json()["data"][0]
        assert (info["transport"], info["state"]) == ("http", "ready")
        long = (await call(client, "long_text", "web", characters=5 << 20)).json()
        assert long.get("is_error", True)
        assert await weather_at_last(client, "web") == "sunny in Rome"

    with_servers(model, ask, McpServerConfig("web", McpUrl(url), timeout=2))


MISBEHAVING = {
    "missing": (McpServerConfig("bad", McpCommand("no-such-program-here")), "cannot run"),
    "dying": (program("bad", "import sys; sys.exit('no key')"), "status 1: no key"),
    "silent": (program("bad", "pass"), "ended with status 0"),
    "babbling": (
        program("bad", "import os\nwhile True: os.write(1, b'x' * 65536)"),
        "more than 4 MiB",
    ),
    "nobody": (McpServerConfig("bad", McpUrl("http://127.0.0.1:9/mcp")), "connection attempts"),
}


@pytest.mark.parametrize("case", MISBEHAVING)
def test_a_server_that_does_not_start_says_why_and_hurts_nobody(model: Path, case: str) -> None:
    bad, reason = MISBEHAVING[case]

    async def ask(client: httpx.AsyncClient) -> None:
        refused, text = await asyncio.gather(call(client, "x", "bad"), weather(client, "other"))
        assert text == "sunny in Rome"
        assert refused.status_code == 502, refused.text
        assert reason in refused.json()["error"]["message"]
        info, good = (await client.get("/mcp/servers")).json()["data"]
        assert (info["state"], good["state"]) == ("failed", "ready")
        assert reason in info["error"]

    with_servers(model, ask, bad, OTHER)


@pytest.mark.parametrize(
    ("then", "patience", "reason"),
    [
        ("time.sleep(0.2)", PATIENCE, "ended with status 0"),
        ("time.sleep(1000)", 0.1, "reads no messages"),
    ],
)
def test_a_server_that_stops_reading_says_why(
    then: str, patience: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ended process matters more than the pipe that broke a moment earlier."""
    monkeypatch.setattr(stdio, "_REASON_SECONDS", patience)
    code = f"import os, time; os.close(0); print('{PING}', flush=True); {then}"

    async def run() -> str:
        async with (
            asyncio.timeout(PATIENCE),
            process_link(McpCommand(sys.executable, ("-c", code))) as link,
        ):
            heard = await link.incoming.receive()
            assert isinstance(heard, SessionMessage)
            await link.outgoing.send(heard)
            return await link.ended

    assert reason in asyncio.run(run())


HANGING = "import time; time.sleep(1000)"


def test_a_server_that_hangs_delays_nobody_else(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(call(client, "x", "bad"))
        assert await weather(client, "other") == "sunny in Rome"
        states = [each["state"] for each in (await client.get("/mcp/servers")).json()["data"]]
        assert states == ["starting", "ready"]
        assert not waiting.done()
        waiting.cancel()

    with_servers(model, ask, program("bad", HANGING), OTHER)


def test_a_call_has_a_time_limit(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "call"

    async def ask(client: httpx.AsyncClient) -> None:
        while not file.exists():  # a call may be over before it has begun
            answer = await call(client, "wait", file=str(file))
            assert answer.status_code == 504, answer.text
            assert "within 1 s" in answer.json()["error"]["message"]
        while file.read_text() != "cancelled\n":
            await asyncio.sleep(0.02)
        assert await weather_at_last(client, "good") == "sunny in Rome"

    with_servers(model, ask, McpServerConfig("good", GOOD.target, timeout=1))


@pytest.mark.parametrize("tool", ["die", "flood_line"])
def test_a_server_that_breaks_during_a_call_is_started_again(
    model: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingot.server.mcp import connection  # noqa: PLC0415

    monkeypatch.setattr(connection, "_RETRY_SECONDS", 0.0)
    breaks, reason = {
        "die": (GOOD, "status 3: I cannot go on"),
        "flood_line": (McpServerConfig("good", PLAIN), "more than 4 MiB"),
    }[tool]

    async def ask(client: httpx.AsyncClient) -> None:
        assert await weather(client, "other") == "sunny in Rome"
        broken = await call(client, tool)
        assert broken.status_code == 502
        assert reason in broken.json()["error"]["message"]
        info, other = (await client.get("/mcp/servers")).json()["data"]
        assert (info["state"], other["state"]) == ("failed", "ready")
        assert await weather(client) == "sunny in Rome"

    with_servers(model, ask, breaks, OTHER)


def test_a_flood_of_messages_is_read_slowly(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert await weather(client, "other") == "sunny in Rome"
        flood = asyncio.create_task(call(client, "flood_messages"))
        for _ in range(5):
            assert await weather(client, "other") == "sunny in Rome"
        assert (await flood).status_code == 504

    with_servers(model, ask, McpServerConfig("good", PLAIN, timeout=1), OTHER)


def test_lines_that_are_no_messages_are_skipped_and_new_tools_are_found(model: Path) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        assert (await call(client, "nonsense", "other", city="x")).json()["text"] == "sunny in x"
        assert (await call(client, "renamed", "other")).status_code == 404
        assert (await call(client, "rename", "other")).status_code == 200
        assert (await call(client, "renamed", "other", city="y")).json()["text"] == "sunny in y"

    with_servers(model, ask, OTHER)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


def config_file(folder: Path, servers: object) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_a_client_that_goes_away_cancels_its_call_and_processes_end_with_the_server(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "call"
    command = {"command": sys.executable, "args": [str(TOOLS)]}
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    stubborn += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid()))\n"
    stubborn += "time.sleep(1000)"
    path = config_file(
        tmp_path,
        {
            "good": command,
            "stubborn": {"command": sys.executable, "args": ["-c", stubborn]},
            "off": {"command": "nothing", "disabled": True},
        },
    )
    with serving(model, "--mcp-config", path) as served:
        served.logged("MCP server good: ")
        body = {"server": "good", "tool": "wait", "arguments": {"file": str(file)}}
        connection = HTTPConnection(served.url.removeprefix("http://"))
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/mcp/call", json.dumps(body), headers)
        until(file.exists)  # the call has begun
        connection.close()
        until(lambda: file.read_text() == "cancelled\n")
        pid_file = tmp_path / "pid"
        until(lambda: pid_file.exists() and bool(pid_file.read_text()))
        servers = httpx.get(f"{served.url}/mcp/servers", timeout=PATIENCE).json()["data"]
        assert [each["name"] for each in servers] == ["good", "stubborn"]
        pid = int(pid_file.read_text())
        served.terminate()
        assert served.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[", "not valid JSON"),
        ("[]", "must have the form"),
        ('{"mcpServers": {"a": 1}}', "mcpServers.a must be an object"),
        ('{"mcpServers": {"a": {}}}', "either a command"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}', "either a command"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "args must be a list"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}', "env must be an object"),
        ('{"mcpServers": {"a": {"url": "ftp://x"}}}', "url must be an address"),
        ('{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}', "type must be one of"),
        ('{"mcpServers": {"a": {"type": "http", "command": "x"}}}', "either a command"),
        ('{"mcpServers": {"a": {"url": "http://x", "timeout": -1}}}', "timeout must be"),
    ],
)
def test_a_wrong_configuration_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=reason):
        read_mcp_config(path)


def test_the_configuration_is_read(tmp_path: Path) -> None:
    path = config_file(
        tmp_path,
        {
            "a": {"command": "run", "args": ["x"], "env": {"A": "b"}, "alwaysAllow": []},
            "b": {"type": "http", "url": "https://x/mcp", "headers": {"K": "v"}, "timeout": 5},
            "c": {"command": "run", "disabled": True},
        },
    )
    assert read_mcp_config(path) == (
        McpServerConfig("a", McpCommand("run", ("x",), {"A": "b"}), unknown=("alwaysAllow",)),
        McpServerConfig("b", McpUrl("https://x/mcp", {"K": "v"}), timeout=5),
    )
    with pytest.raises(ConfigError, match="cannot read"):
        read_mcp_config(tmp_path / "nothing")


def test_the_command_line_says_what_is_wrong_with_the_file(model: Path, tmp_path: Path) -> None:
    process = start(model, "--mcp-config", tmp_path / "nothing.json")
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "nothing.json" in error
