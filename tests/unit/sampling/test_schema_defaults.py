"""What schemas become that say nothing of other keys, lengths and sizes."""

from typing import Any

import pytest

from ingot.sampling.grammar.schema_defaults import (
    LARGEST_INTEGER,
    LONGEST_STRING,
    MOST_RANGES,
    bounded,
    closed,
)

CITY = {"type": "object", "properties": {"name": {"type": "string"}}}
CLOSED = {**CITY, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (CITY, CLOSED),
        ({"properties": {"a": CITY}}, {"properties": {"a": CLOSED}, "additionalProperties": False}),
        ({"items": CITY}, {"items": CLOSED}),
        ({"anyOf": [CITY, True]}, {"anyOf": [CLOSED, True]}),
        ({"$defs": {"City": CITY}}, {"$defs": {"City": CLOSED}}),
        ({"additionalProperties": CITY}, {"additionalProperties": CLOSED}),
        ({"allOf": [CITY]}, {"allOf": [CLOSED]}),
    ],
)
def test_objects_are_closed(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert closed(schema) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**CITY, "additionalProperties": True},
        {**CITY, "patternProperties": {"^x-": True}},
        {**CITY, "anyOf": [{"required": ["name"]}]},
        {"allOf": [CITY, {"properties": {"size": {}}}]},
        {"allOf": [{"$ref": "#/$defs/City"}, {"maxProperties": 2}], "$defs": {"City": CITY}},
        {"if": {"properties": {"a": {}}}, "then": CITY},
    ],
)
def test_objects_that_say_more_or_are_combined_stay_open(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


@pytest.mark.parametrize(
    ("schema", "added"),
    [
        ({"type": "string"}, {"maxLength": LONGEST_STRING}),
        ({"type": ["string", "null"]}, {"maxLength": LONGEST_STRING}),
        ({"type": "string", "minLength": 10**6}, {"maxLength": 10**6}),
        ({"type": "integer"}, {"minimum": -LARGEST_INTEGER, "maximum": LARGEST_INTEGER}),
        ({"type": "integer", "minimum": 0}, {"maximum": LARGEST_INTEGER}),
        ({"type": "integer", "exclusiveMaximum": 0}, {"minimum": -LARGEST_INTEGER}),
        ({"type": "string", "maxLength": 3}, {}),
        ({"type": "string", "pattern": "a+"}, {}),
        ({"type": "string", "format": "date"}, {}),
        ({"type": "integer", "minimum": 2**60}, {}),
        ({"type": "integer", "minimum": 1, "maximum": 2}, {}),
        ({"type": "integer", "enum": [1]}, {}),
        ({"type": "number"}, {}),
        ({}, {}),
    ],
)
def test_values_are_bounded(schema: dict[str, Any], added: dict[str, Any]) -> None:
    expected = {**schema, **added}
    assert bounded(schema) == expected
    nested = {"properties": {"a": {"items": schema}}}
    assert bounded(nested) == {"properties": {"a": {"items": expected}}}


@pytest.mark.parametrize(("count", "is_bounded"), [(MOST_RANGES, True), (MOST_RANGES + 1, False)])
def test_only_a_few_integers_get_a_range(count: int, is_bounded: bool) -> None:
    properties = {f"p{i}": {"type": "integer"} for i in range(count)}
    schema = {"properties": {**properties, "s": {"type": "string"}}}
    made = bounded(schema)["properties"]
    assert ("maximum" in made["p0"]) is is_bounded
    assert made["s"]["maxLength"] == LONGEST_STRING
