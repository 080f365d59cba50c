"""Stricter readings of JSON schemas: objects without undeclared keys, values that end.

In: a schema. Out: a copy of it with keywords added where it says nothing. JSON Schema allows any
further key and numbers and strings of any length; a model that may write them often does not stop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Schema = dict[str, Any]
# Changes one schema; the second argument says whether it is combined with others (`allOf`).
_Change = Callable[[Schema, bool], Schema]

LONGEST_STRING = 16_384  # characters
LARGEST_INTEGER = 2**53 - 1  # the largest that every JSON parser reads exactly
MOST_RANGES = 256  # integers that get a range; llguidance refuses schemas with 1000 of them

_ONE = ("items", "additionalProperties", "contains")
_SEVERAL = ("anyOf", "oneOf", "prefixItems")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_COMBINED = ("then", "else")
# Other keywords that name keys or add schemas; an object with them is left open.
_OPENING = (
    "$ref", "additionalProperties", "allOf", "anyOf", "dependentSchemas", "if", "oneOf",
    "patternProperties", "propertyNames", "unevaluatedProperties",
)  # fmt: skip
_STRING_LIMITS = ("const", "enum", "format", "maxLength", "pattern")
_INTEGER_LIMITS = ("const", "enum")


def closed(schema: Mapping[str, object]) -> Schema:
    """The same schema, whose objects have no other keys than the properties that it lists.

    Objects that say `additionalProperties`, or are combined with other schemas, stay as they are.
    """
    shared = _references_in_combinations(schema)

    def close(made: Schema, is_combined: bool) -> Schema:
        is_open = is_combined or any(name in made for name in _OPENING)
        if not isinstance(made.get("properties"), Mapping) or is_open:
            return made
        return {**made, "additionalProperties": False}

    return _changed(schema, close, shared)


def bounded(schema: Mapping[str, object]) -> Schema:
    """The same schema, with limits for strings that have none, and for integers if they are few."""
    made = _changed(schema, _bound_string, frozenset())
    ranges = 0

    def bound(one: Schema, _: bool) -> Schema:
        nonlocal ranges
        found = _bound_integer(one)
        ranges += found is not one
        return found

    with_ranges = _changed(made, bound, frozenset())
    return with_ranges if ranges <= MOST_RANGES else made


def _bound_string(made: Schema, _: bool) -> Schema:
    least = made.get("minLength", 0)
    if not _may_be("string", made, _STRING_LIMITS) or not isinstance(least, int):
        return made
    return {**made, "maxLength": max(least, LONGEST_STRING)}


def _may_be(kind: str, schema: Schema, limits: Sequence[str]) -> bool:
    """Whether a schema allows values of a type, without one of the keywords that limit them."""
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return kind in kinds and not any(name in schema for name in limits)


def _bound_integer(made: Schema) -> Schema:
    if not _may_be("integer", made, _INTEGER_LIMITS):
        return made
    low = made.get("minimum", made.get("exclusiveMinimum"))
    high = made.get("maximum", made.get("exclusiveMaximum"))
    if low is None and (high is None or _is_at_most(high, LARGEST_INTEGER)):
        made = {**made, "minimum": -LARGEST_INTEGER}
    if high is None and (low is None or _is_at_most(low, LARGEST_INTEGER)):
        made = {**made, "maximum": LARGEST_INTEGER}
    return made


def _is_at_most(value: object, most: int) -> bool:
    return isinstance(value, (int, float)) and -most < value < most


def _changed(
    schema: Mapping[str, object],
    change: _Change,
    shared: frozenset[str],
    *,
    is_combined: bool = False,
) -> Schema:
    """A copy of a schema with a change made in it and in every schema inside it."""

    def inner(value: object, *, combined: bool = False) -> object:
        if not isinstance(value, Mapping):
            return value
        return _changed(value, change, shared, is_combined=combined)

    made: Schema = dict(schema)
    for name in _ONE:
        if name in made:
            made[name] = inner(made[name])
    for name in _COMBINED:
        if name in made:
            made[name] = inner(made[name], combined=True)
    for name in _SEVERAL:
        if isinstance(made.get(name), list):
            made[name] = [inner(each) for each in made[name]]
    if isinstance(parts := made.get("allOf"), list):
        made["allOf"] = [inner(each, combined=_combines(made)) for each in parts]
    for name in _BY_NAME:
        if isinstance(listed := made.get(name), Mapping):
            made[name] = {
                key: inner(value, combined=f"#/{name}/{key}" in shared)
                for key, value in listed.items()
            }
    return change(made, is_combined)


def _combines(schema: Mapping[str, Any]) -> bool:
    """Whether `allOf` joins several schemas; pydantic also writes it around a single one."""
    return len(schema["allOf"]) > 1 or "properties" in schema


def _references_in_combinations(schema: object) -> frozenset[str]:
    """The references that are part of an `allOf` with other schemas."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        match pending.pop():
            case list(values):
                pending += values
            case Mapping() as values:
                pending += values.values()
                if isinstance(values.get("allOf"), list) and _combines(values):
                    parts = [part for part in values["allOf"] if isinstance(part, Mapping)]
                    found |= {str(part["$ref"]) for part in parts if "$ref" in part}
    return frozenset(found)
