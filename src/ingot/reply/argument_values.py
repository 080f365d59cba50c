"""Argument values that are written as plain text, converted to JSON.

In: the text of a value, and the JSON schema of its parameter. Out: JSON. If the parameter is a
string, the text is the string. Otherwise the text is JSON, or a string if it is not valid JSON.
Python's True, False and None, which some templates write, count as true, false and null.
"""

import json
from collections.abc import Mapping

from ingot.reply import json_reader

ANY_KIND = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
ONLY_TEXT = frozenset({"string"})

DEEPEST = 16  # references may be circular
_BY_FIRST = {
    "{": "object",
    "[": "array",
    '"': "string",
    "t": "boolean",
    "f": "boolean",
    "n": "null",
}
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_BLANKS = " \t\r\n"


def kinds_of(schema: object, root: Mapping[str, object], depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema may allow; its references point into `root`."""
    if not isinstance(schema, Mapping) or depth == DEEPEST:
        return ANY_KIND
    found = [_named(schema.get("type"))]
    if isinstance(values := schema.get("enum"), list):
        found.append(_kinds_in(values))
    if "const" in schema:
        found.append(_kinds_in([schema["const"]]))
    if "$ref" in schema:
        found.append(kinds_of(resolved(schema["$ref"], root), root, depth + 1))
    for options in listed(schema, "anyOf", "oneOf"):
        allowed = (kinds_of(each, root, depth + 1) for each in options)
        found.append(frozenset(kind for kinds in allowed for kind in kinds))
    for parts in listed(schema, "allOf"):
        found += [kinds_of(each, root, depth + 1) for each in parts]
    return ANY_KIND.intersection(*found) or ANY_KIND


def object_schema(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """The schema of the arguments of a tool, with a top-level reference resolved."""
    if "$ref" not in parameters:
        return parameters
    found = resolved(parameters["$ref"], parameters)
    return found if isinstance(found, Mapping) else {}


def kinds_of_argument(parameters: Mapping[str, object], key: str) -> frozenset[str]:
    """The JSON types that one argument may have."""
    given = object_schema(parameters)
    properties = given.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return kinds_of(known.get(key, given.get("additionalProperties")), parameters)


def listed(schema: Mapping[str, object], *names: str) -> list[list[object]]:
    """The values of these keywords that are lists."""
    return [value for name in names if isinstance(value := schema.get(name), list)]


def resolved(reference: object, root: Mapping[str, object]) -> object:
    """What a reference such as `#/$defs/Place` points to; None if it is missing."""
    found: object = root
    for name in str(reference).removeprefix("#").split("/")[1:]:
        plain = name.replace("~1", "/").replace("~0", "~")
        found = found.get(plain) if isinstance(found, Mapping) else None
    return found


def kind_of(text: str) -> str | None:
    """The JSON type of a text; None if it is not JSON."""
    if not json_reader.is_value(text):
        return None
    digits = text.removeprefix("-")
    return _BY_FIRST.get(text[0], "integer" if digits.isdigit() else "number")


def as_json(text: str, kinds: frozenset[str]) -> str:
    """A text as JSON, for a value of one of these types."""
    bare = text.strip(_BLANKS)
    bare = _PYTHON_WORDS.get(bare, bare)
    kind = kind_of(bare)
    is_other_type = kind in kinds and kind != "string"
    if is_other_type or (kind is not None and "string" not in kinds):
        return bare
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """A piece of text, escaped for a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _kinds_in(values: list[object]) -> frozenset[str]:
    kinds = (kind_of(json.dumps(value)) for value in values)
    return frozenset(kind for kind in kinds if kind is not None)


def _named(names: object) -> frozenset[str]:
    """The types that `type` names; unknown names are ignored."""
    given = names if isinstance(names, list) else [names]
    found = frozenset(name for name in given if isinstance(name, str)) & ANY_KIND
    return (found | {"integer"} if "number" in found else found) or ANY_KIND
