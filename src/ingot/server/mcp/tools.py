"""The tools of MCP servers, what they return, and why they cannot be used. No connections."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["starting", "ready", "failed", "stopped"]
_MOST_CHARACTERS = 1 << 18  # of a result, for the model


class McpError(Exception):
    """An MCP server cannot be used; the message names it and says why."""


class McpTimeoutError(McpError):
    """A tool did not answer in time."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool, as its server describes it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool  # as the server says

    def as_json(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's list of tools."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": dict(self.input_schema),
            "annotations": {"readOnlyHint": self.read_only},
        }


@dataclass(frozen=True, slots=True)
class McpResult:
    """What a tool returned: blocks of content in MCP's form."""

    content: Sequence[Mapping[str, Any]]
    structured: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The result as the model reads it."""
        blocks = [_block_text(block) for block in self.content]
        if not blocks and self.structured is not None:
            blocks = [json.dumps(self.structured, ensure_ascii=False)]
        return "\n".join(blocks)


def failure(message: str) -> McpResult:
    """A result that tells the model of an error."""
    return McpResult([{"type": "text", "text": message}], is_error=True)


def bounded(result: McpResult) -> McpResult:
    """The result, or an error if the model could not read anything of that length."""
    if len(text := result.text) <= _MOST_CHARACTERS:
        return result
    return failure(
        f"the result has {len(text)} characters; at most {_MOST_CHARACTERS} can be read; "
        "ask for less"
    )


def _block_text(block: Mapping[str, Any]) -> str:
    """A block of content as text; of images and sounds only what they are."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource_link", "uri": uri}:
            return f"[resource: {uri}]"
        case {"type": kind, "mimeType": media}:
            return f"[{kind} of type {media}, which cannot be shown]"
        case {"type": kind}:
            return f"[{kind}, which cannot be shown]"
        case _:
            return "[content of an unknown type]"
