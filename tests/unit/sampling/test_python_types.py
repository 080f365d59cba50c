"""Types as schemas, and JSON as their objects."""

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

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


@dataclass
class Visit:
    city: City
    day: date
    at: datetime | None = None
    colour: Colour = Colour.RED
    opens: time = time(9)
    id: UUID | None = None
    length: Annotated[int, "in minutes"] = 60


def test_dates_enumerations_and_pydantic_models_are_fields_of_dataclasses() -> None:
    text = json.dumps(
        {
            "city": {"name": "Ulm", "people": 5},
            "day": "2024-02-29",
            "at": "2024-02-29T10:30:00Z",
            "colour": 2,
            "opens": "08:15:00",
            "id": "12345678-1234-5678-1234-567812345678",
        }
    )
    schema = schema_of(Visit)
    jsonschema.validate(json.loads(text), schema)
    fields_of = schema["$defs"]["Visit"]["properties"]
    assert fields_of["day"] == {"type": "string", "format": "date"}
    assert fields_of["length"] == {"type": "integer", "description": "in minutes"}
    assert parse_as(Visit, text) == Visit(
        City(name="Ulm", people=5),
        date(2024, 2, 29),
        datetime(2024, 2, 29, 10, 30, tzinfo=UTC),
        Colour.BLUE,
        time(8, 15),
        UUID("12345678-1234-5678-1234-567812345678"),
    )
    wrong = text.replace("02-29", "02-31")
    with pytest.raises(GrammarError, match="2024-02-31"):
        parse_as(Visit, wrong)
    with pytest.raises(GrammarError, match="not valid"):
        parse_as(Visit, text.replace('"colour": 2', '"colour": "green"'))


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
    for kind in (object, complex, set[int]):
        with pytest.raises(GrammarError):
            schema_of(kind)


@pytest.mark.parametrize("kind", [Point, City, date, UUID])
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
