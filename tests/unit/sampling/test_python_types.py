"""Types as schemas, and JSON as their objects."""

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Optional

import jsonschema
import pydantic
import pytest
from grammar_runs import write

from ingot.errors import GrammarError
from ingot.sampling import ChainBuilder
from ingot.sampling.grammar.python_types import grammar_of, parse_as, schema_of
from ingot.tokenizer import Tokenizer


class Colour(Enum):
    RED = "red"
    BLUE = 2


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass(frozen=True)
class Shape:
    name: str
    colour: Colour
    points: list[Point]
    size: tuple[int, str]
    many: tuple[int, ...] = ()
    kind: Literal["open", 3] = "open"
    parent: Optional["Shape"] = None
    notes: dict[str, int | str] = field(default_factory=dict)
    flag: bool = False
    anything: Any = None


class City(pydantic.BaseModel):
    name: str
    people: int = pydantic.Field(ge=0, le=9)


SHAPE = Shape(
    "s", Colour.BLUE, [Point(1, 2.0), Point(3)], (4, "five"), (6, 7), 3,
    Shape("p", Colour.RED, [], (0, "")), {"a": 1, "b": "two"}, True, [1, None],
)  # fmt: skip
SHAPE_JSON = json.dumps(
    {
        "name": "s", "colour": 2, "points": [{"x": 1, "y": 2}, {"x": 3}], "size": [4, "five"],
        "many": [6, 7], "kind": 3, "parent": {"name": "p", "colour": "red", "points": [],
        "size": [0, ""]}, "notes": {"a": 1, "b": "two"}, "flag": True, "anything": [1, None],
    }
)  # fmt: skip


def test_a_dataclass_comes_back_from_its_json() -> None:
    jsonschema.validate(json.loads(SHAPE_JSON), schema_of(Shape))
    made = parse_as(Shape, SHAPE_JSON)
    assert made == SHAPE
    assert isinstance(made.points[0].y, float)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "a"), (int, 3), (float, 2.5), (bool, True), (None, None), (list[int], [1, 2]),
        (dict[str, bool], {"a": True}), (int | None, None), (Literal["a", "b"], "b"),
        (tuple[int, bool], (1, False)), (list, [1, "a"]), (dict, {"a": []}),
    ],
)  # fmt: skip
def test_plain_types(kind: Any, value: object) -> None:
    jsonschema.validate(json.loads(json.dumps(value)), schema_of(kind))
    assert parse_as(kind, json.dumps(value)) == value


def test_fields_with_a_default_may_be_missing() -> None:
    schema = schema_of(Point)["$defs"]["Point"]
    assert schema["required"] == ["x"]
    assert schema["additionalProperties"] is False


def test_pydantic_models() -> None:
    assert schema_of(City) == {**City.model_json_schema(), "additionalProperties": False}
    assert parse_as(City, '{"name": "Ulm", "people": 5}') == City(name="Ulm", people=5)


class Road(pydantic.BaseModel):
    ends: tuple[City, City]
    model_config = pydantic.ConfigDict(extra="allow")


def test_pydantic_models_are_closed_unless_they_allow_more() -> None:
    schema = schema_of(Road)
    assert schema["additionalProperties"] is True
    assert schema["$defs"]["City"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Point, '{"x": "1"}'), (Point, '{"x": 1, "z": 2}'), (Point, "{}"), (Point, '{"x": 1'),
        (int, "true"), (int, "1.5"), (int | str, "[]"), (Literal["a"], '"b"'), (None, "0"),
        (list[int], '["a"]'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(GrammarError):
        parse_as(kind, text)


def test_types_without_a_schema_are_refused() -> None:
    @dataclass
    class Mixed:
        city: City

    for kind in (object, complex, set[int], Mixed):
        with pytest.raises(GrammarError):
            schema_of(kind)


@pytest.mark.parametrize("kind", [Point, City])
def test_objects_are_made_of_what_a_model_writes(
    builder: ChainBuilder, letters: Tokenizer, kind: type
) -> None:
    made = 0
    for seed in range(6):
        text = write(builder, letters, grammar_of(kind), seed)
        if text is not None:
            assert isinstance(parse_as(kind, text), kind)
            made += 1
    assert made > 0
