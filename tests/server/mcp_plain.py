"""An MCP server without any package, which starts quickly: `python mcp_plain.py`.

It has a tool that answers and tools that misbehave on stdout.
"""

import json
import sys

TOOLS = ("get_weather", "flood_line", "flood_messages", "nonsense", "rename")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
names = list(TOOLS)


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name: str, arguments: dict[str, str]) -> str:
    match name:
        case "flood_line":
            while True:
                sys.stdout.write("x" * 65536)
        case "flood_messages":
            while True:
                send(method="notifications/message", params={"level": "info", "data": "x"})
        case "nonsense":
            sys.stdout.write("this is no JSON\n[]\n{\n")
        case "rename":
            names.append("renamed")
            send(method="notifications/tools/list_changed")
    return f"sunny in {arguments.get('city')}"


for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            version = params["protocolVersion"]
            told = {"protocolVersion": version, "serverInfo": {"name": "plain", "version": "1"}}
            send(id=request["id"], result={**told, "capabilities": {"tools": {}}})
        case "tools/list":
            tools = [{"name": name, "inputSchema": SCHEMA} for name in names]
            send(id=request["id"], result={"tools": tools})
        case "tools/call":
            text = call(params["name"], params.get("arguments") or {})
            send(id=request["id"], result={"content": [{"type": "text", "text": text}]})
