"""A real MCP server for the tests: `python mcp_tools.py` on stdio, `python mcp_tools.py PORT` at a
port. Some of its tools misbehave.
"""

import os
import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("tools", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"sunny in {city}"


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the tool is broken")


@server.tool()
def variable(name: str) -> str:
    """Read an environment variable."""
    return os.environ.get(name, "")


@server.tool()
async def wait(file: str) -> str:
    """Write to a file that the call has begun and that it was cancelled; never return."""
    path = Path(file)
    path.write_text(f"{os.getpid()}\n")
    try:
        await anyio.sleep_forever()
    finally:
        path.write_text("cancelled\n")
    return ""


@server.tool()
def die() -> str:
    """End the process."""
    print("I cannot go on", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def long_text(characters: int) -> str:
    """Return a long text."""
    return "x" * characters


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
