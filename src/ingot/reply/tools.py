"""The tools a model may call, as requests describe them.

Comes in: mappings in OpenAI's form, `{"type": "function", "function": {"name": ...}}`, or the
inner one alone. Goes out: checked `Tool`s. It does not know how a model calls them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.errors import ToolError


@dataclass(frozen=True, slots=True)
class Tool:
    """One function."""

    name: str
    description: str = ""
    # A JSON schema of the arguments; without one there are none.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False  # arguments must follow the schema also where calling is optional

    def as_mapping(self) -> dict[str, Any]:
        """The tool in OpenAI's form, which chat templates read."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """The tools of a request; wrong ones raise `ToolError`."""
    made = tuple(_tool(number, tool) for number, tool in enumerate(tools or ()))
    names = [tool.name for tool in made]
    for name in names:
        if names.count(name) > 1:
            raise ToolError(f"there are several tools named {name!r}; give each its own name")
    return made


def _tool(number: int, given: Mapping[str, Any]) -> Tool:
    function = given.get("function", given)
    match function:
        case {"name": str(name)} if name:
            described = function.get("description") or ""
            parameters = function.get("parameters") or {}
            strict = function.get("strict") or False
        case _:
            raise ToolError(f'tools[{number}] has no "name"; a tool is a function with a name')
    if not isinstance(described, str):
        raise ToolError(f"the description of tool {name!r} must be a text")
    if not isinstance(parameters, Mapping):
        raise ToolError(f"the parameters of tool {name!r} must be a JSON schema of an object")
    if not isinstance(strict, bool):
        raise ToolError(f'"strict" of tool {name!r} must be true or false')
    return Tool(name, described, parameters, strict)
