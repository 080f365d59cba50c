"""FunctionTool: a Python function as a tool.

In: a function with type hints and, best, a docstring. Out: a `Tool` with the schema of its
parameters, and arguments in JSON as Python objects of the hinted types. Descriptions come from the
docstring (Google's `Args:` or Sphinx's `:param name:`) or from `Annotated[str, "description"]`.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from inspect import Parameter
from typing import Any, get_type_hints

from ingot.errors import GrammarError, ToolError
from ingot.reply.tools import Tool
from ingot.sampling.grammar.python_types import convert, schema_of_fields

_SECTION = re.compile(r"(?:Args|Arguments|Parameters):")
_OTHER_SECTION = re.compile(r"(?:Returns|Yields|Raises|Examples?|Notes?):|:\w+[^:]*:")
_ENTRY = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_SPHINX = re.compile(r":param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function, and the tool that describes it to a model."""

    function: Callable[..., Any]
    tool: Tool
    hints: Mapping[str, Any]

    def arguments(self, text: str) -> dict[str, Any]:
        """The keyword arguments of a call; `GrammarError` says why they do not fit."""
        given = json.loads(text)
        for name in given:
            if name not in self.hints:
                known = ", ".join(self.hints) or "none"
                raise GrammarError(f"{self.tool.name} has no parameter {name!r}; it has: {known}")
        required = self.tool.parameters.get("required")
        for name in required if isinstance(required, list) else ():
            if name not in given:
                raise GrammarError(f"{self.tool.name} needs the parameter {name!r}")
        return {name: convert(self.hints[name], value) for name, value in given.items()}


def function_tool(function: Callable[..., Any]) -> FunctionTool:
    """Describe a function; `ToolError` if its signature has no schema."""
    name = getattr(function, "__name__", "")
    if not callable(function) or not name.isidentifier():
        raise ToolError(f"{function!r:.80} is not a tool: pass a named function or a mapping")
    hints = _hints(name, function)
    described, parameters = _read_docstring(inspect.getdoc(function) or "")
    try:
        schema = schema_of_fields(
            hints, [each.name for each in _parameters(function) if each.default is each.empty]
        )
    except GrammarError as error:
        raise ToolError(f"the function {name!r} cannot be a tool: {error}") from None
    for each in _parameters(function):
        entry = schema["properties"][each.name]
        if each.name in parameters:
            entry.setdefault("description", parameters[each.name])
        if each.default is not each.empty:
            with suppress(TypeError, ValueError):  # a default that is not JSON is not shown
                entry["default"] = json.loads(json.dumps(each.default, allow_nan=False))
    return FunctionTool(function, Tool(name, described, schema), hints)


def result_text(result: object) -> str:
    """What a function returned, as text for the model: strings as they are, the rest as JSON."""
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json")
    return str(value)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    return list(inspect.signature(function).parameters.values())


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The types of all parameters; one without a hint may be anything."""
    try:
        known = get_type_hints(inspect.unwrap(function), include_extras=True)
        parameters = _parameters(function)
    except (NameError, TypeError, ValueError) as error:
        raise ToolError(f"the type hints of {name!r} cannot be read: {error}") from None
    for each in parameters:
        if each.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            raise ToolError(
                f"{name!r} cannot be a tool: its parameter {each} cannot be passed by name"
            )
    return {each.name: known.get(each.name, Any) for each in parameters}


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description of a function, and those of its parameters."""
    lines = text.splitlines()
    parameters: dict[str, str] = {}
    described: list[str] = []
    for number, line in enumerate(lines):
        if _SECTION.fullmatch(line):
            parameters |= _entries(lines[number + 1 :])
            break
        if found := _SPHINX.fullmatch(line):
            parameters[found[1]] = found[2]
        elif _OTHER_SECTION.match(line):
            break
        elif not parameters:
            described.append(line)
    return "\n".join(described).strip(), parameters


def _entries(lines: Sequence[str]) -> dict[str, str]:
    """The parameters of a section; a line that is indented further continues the one before."""
    found: dict[str, str] = {}
    indent, name = "", ""
    for line in lines:
        if line and not line[0].isspace():
            break
        entry = _ENTRY.fullmatch(line)
        if entry and (not indent or entry[1] == indent):
            indent, name = entry[1], entry[2]
            found[name] = entry[3]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
