"""Tool: a function that a model may call, as requests describe it.

In: mappings in OpenAI's form, `{"type": "function", "function": {"name": ...}}`, or the inner one
alone, or Python functions. Out: checked `Tool`s. It does not know how a model calls them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.errors import ToolError

ToolLike = Mapping[str, Any] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with a name, a description and a JSON schema of its parameters."""

    name: str
    description: str = ""
    # A JSON schema of the arguments; empty: there are none.
    parameters: Mapping[str, object] = field(default_factory=dict)
    strict: bool = False  # arguments must follow the schema even if calling is optional

    def as_mapping(self) -> dict[str, object]:
        """The tool in OpenAI's form, which chat templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


def read_tools(tools: Sequence[ToolLike] | None) -> tuple[Tool, ...]:
    """The tools of a request; `ToolError` if one is invalid."""
    made = tuple(_tool(number, tool) for number, tool in enumerate(tools or ()))
    names = [tool.name for tool in made]
    for name in names:
        if names.count(name) > 1:
            raise ToolError(f"several tools are named {name!r}; give each a different name")
    return made


def _tool(number: int, given: ToolLike) -> Tool:
    if not isinstance(given, Mapping):
        from ingot.reply.function_tools import function_tool  # noqa: PLC0415 (it needs `Tool`)

        return function_tool(given).tool
    function = given.get("function", given)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise ToolError(f'tools[{number}] has no "name"; every tool needs one')
    described = function.get("description") or ""
    parameters = function.get("parameters") or {}
    strict = function.get("strict") or False
    if not isinstance(described, str):
        raise ToolError(f"the description of tool {name!r} must be a string")
    if not isinstance(parameters, Mapping):
        raise ToolError(f"the parameters of tool {name!r} must be a JSON schema of an object")
    if not isinstance(strict, bool):
        raise ToolError(f'"strict" of tool {name!r} must be true or false')
    return Tool(name, described, parameters, strict)
