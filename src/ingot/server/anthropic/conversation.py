"""Messages as Anthropic's bodies have them, and as chat templates read them.

Comes in: messages of blocks. Goes out: messages whose content is text, with the calls of tools
and their results beside it. Messages of the same role that follow each other become one.
"""

import json
from typing import Any, Literal

from ingot.server.body_limits import Many
from ingot.server.chatting import Message
from ingot.server.errors import ApiError
from ingot.server.sampling_body import Body


class SystemBlock(Body):
    """A part of the system prompt."""

    type: Literal["text"]
    text: str


class Block(Body):
    """A part of a message. Which fields it must have depends on its type."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | Many[Block] | None" = None
    is_error: bool | None = None


class MessageBody(Body):
    """Something said."""

    role: Literal["user", "assistant", "system"]
    content: str | Many[Block]


def for_template(
    messages: list[MessageBody], system: str | list[SystemBlock] | None
) -> list[Message]:
    """The conversation as templates read it."""
    turns: list[list[Message]] = []  # messages of one role that follow each other
    if system:
        text = system if isinstance(system, str) else "\n".join(block.text for block in system)
        turns.append([{"role": "system", "content": text}])
    names: dict[str, str] = {}  # of tools, by the ids of their calls
    for number, message in enumerate(messages):
        for part in _parts(f"messages[{number}]", message, names):
            if turns and turns[-1][0]["role"] == part["role"] != "tool":
                turns[-1].append(part)
            else:
                turns.append([part])
    return [_joined(turn) for turn in turns]


def _parts(where: str, message: MessageBody, names: dict[str, str]) -> list[Message]:
    """A message: results of tools stand apart, before the rest."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    results: list[Message] = []
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in message.content:
        match block.type, message.role:
            case "text", _:
                texts.append(_needed(block.text, where, "text"))
            case "tool_result", "user":
                results.append(_result(where, block, names))
            case "thinking", "assistant":
                thoughts.append(_needed(block.thinking, where, "thinking"))
            case "redacted_thinking", "assistant":
                pass  # nobody here can read it
            case "tool_use", "assistant":
                calls.append(_call(where, block, names))
            case kind, role:
                raise ApiError(400, f"{where}: a {role} message cannot hold {kind!r:.60} here")
    said: Message = {"role": message.role, "content": "\n".join(texts)}
    if thoughts:
        said["reasoning_content"] = "\n".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    return [*results, *([said] if texts or thoughts or calls or not results else [])]


def _call(where: str, block: Block, names: dict[str, str]) -> dict[str, Any]:
    name, id = _needed(block.name, where, "name"), _needed(block.id, where, "id")
    names[id] = name
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": block.input or {}},
    }


def _result(where: str, block: Block, names: dict[str, str]) -> Message:
    id = _needed(block.tool_use_id, where, "tool_use_id")
    if id not in names:
        raise ApiError(400, f"{where}: tool_use_id {id!r:.60} is the id of no tool_use before it")
    text = block.content or ""
    if not isinstance(text, str):
        for inner in text:
            if inner.type != "text":
                raise ApiError(400, f"{where}: a tool_result cannot hold {inner.type!r:.60} here")
        text = "\n".join(_needed(inner.text, where, "text") for inner in text)
    if block.is_error:
        text = json.dumps({"error": text}, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": id, "name": names[id], "content": text}


def _needed(value: str | None, where: str, name: str) -> str:
    if value is None:
        raise ApiError(400, f"{where}: a block has no {name!r}")
    return value


def _joined(turn: list[Message]) -> Message:
    made: Message = {}
    for part in turn:
        made |= part
    for name in ("content", "reasoning_content"):
        texts = [part[name] for part in turn if part.get(name)]
        if texts:
            made[name] = "\n".join(texts)
    calls = [call for part in turn for call in part.get("tool_calls", ())]
    return {**made, "tool_calls": calls} if calls else made
