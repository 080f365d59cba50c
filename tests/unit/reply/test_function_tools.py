"""Functions as tools: their schemas, and arguments as their types."""

from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from ingot.errors import GrammarError, ToolError
from ingot.reply import for_template, read_tools, style_of
from ingot.reply.function_tools import function_tool, result_text


class Unit(Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Place:
    city: str
    country: str = "Italy"


class Span(BaseModel):
    days: int


def get_weather(
    place: Place,
    day: date,
    span: Span | None = None,
    unit: Unit = Unit.CELSIUS,
    detail: Literal["short", "long"] = "short",
    note: Annotated[str, "for the log"] = "",
) -> str:
    """Look up the weather.

    Twice a day.

    Args:
        place: Where to look,
            with its country.
        day (date): The day.
        unit: Of temperatures.

    Returns:
        A sentence.
    """
    return f"{place} {day} {span} {unit} {detail} {note}"


def test_a_schema_comes_from_the_signature_and_the_docstring() -> None:
    tool = function_tool(get_weather).tool
    assert (tool.name, tool.description) == ("get_weather", "Look up the weather.\n\nTwice a day.")
    schema: Any = tool.parameters
    assert schema["required"] == ["place", "day"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["place"] == {
        "$ref": "#/$defs/Place",
        "description": "Where to look, with its country.",
    }
    assert properties["day"] == {"type": "string", "format": "date", "description": "The day."}
    assert properties["unit"] == {"enum": ["C", "F"], "description": "Of temperatures."}
    assert properties["detail"] == {"enum": ["short", "long"], "default": "short"}
    assert properties["note"] == {"type": "string", "description": "for the log", "default": ""}
    assert schema["$defs"]["Place"]["required"] == ["city"]


def test_sphinx_docstrings_and_missing_hints() -> None:
    def add(a, b: int = 2):
        """Add.

        :param a: The first.
        :param int b: The second.
        :return: The sum.
        """
        return a + b

    tool = function_tool(add).tool
    assert tool.description == "Add."
    assert tool.parameters["properties"] == {
        "a": {"description": "The first."},
        "b": {"type": "integer", "description": "The second.", "default": 2},
    }


def test_arguments_get_the_types_of_the_signature() -> None:
    tool = function_tool(get_weather)
    given = tool.arguments(
        '{"place": {"city": "Rome"}, "day": "2024-05-01", "span": {"days": 2}, "unit": "F"}'
    )
    assert given == {
        "place": Place("Rome"),
        "day": date(2024, 5, 1),
        "span": Span(days=2),
        "unit": Unit.FAHRENHEIT,
    }
    for wrong, said in [
        ('{"place": {"city": "Rome"}}', "needs the parameter 'day'"),
        ('{"plaze": 1}', "no parameter 'plaze'"),
        ('{"place": {"city": 1}, "day": "2024-05-01"}', "not of type"),
        ('{"place": {"city": "Rome"}, "day": "tomorrow"}', "tomorrow"),
    ]:
        with pytest.raises(GrammarError, match=said):
            tool.arguments(wrong)


def test_what_cannot_be_a_tool_is_refused() -> None:
    def many(*cities: str) -> None: ...
    def strange(value: complex) -> None: ...
    def unknown(value: "Nowhere") -> None: ...  # noqa: F821 (that is the point)

    for function, said in [
        (many, "cannot be passed by name"),
        (strange, "no JSON schema"),
        (unknown, "Nowhere"),
        (partial(print, 1), "named function"),
        (lambda: 1, "named function"),
        (3, "named function"),
    ]:
        with pytest.raises(ToolError, match=said):
            read_tools([function])  # type: ignore[list-item]


def test_templates_get_functions_as_mappings() -> None:
    _, tools = for_template("hi", [get_weather], style_of("{{ tools }}"))
    assert tools is not None
    assert tools[0]["function"]["name"] == "get_weather"


def test_results_become_text() -> None:
    assert result_text("warm") == "warm"
    assert result_text({"å": [1, None]}) == '{"å": [1, null]}'
    assert result_text([Place("Rome"), Span(days=2), date(2024, 5, 1)]) == (
        '[{"city": "Rome", "country": "Italy"}, {"days": 2}, "2024-05-01"]'
    )
