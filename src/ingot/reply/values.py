"""Values of arguments that are written as plain text: what JSON they stand for.

Comes in: the text of a value, and the JSON schema of its parameter. Goes out: JSON. A text says
itself where its parameter is a string; elsewhere it is JSON, or else a string all the same. What
templates write for true, false and null in Python's words counts as those.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ingot.reply import json_text

ANY_KIND = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
ONLY_TEXT = frozenset({"string"})

DEEPEST = 16  # references may go round in circles
_BY_FIRST = {
    "{": "object",
    "[": "array",
    '"': "string",
    "t": "boolean",
    "f": "boolean",
    "n": "null",
}
_PYTHONS = {"True": "true", "False": "false", "None": "null"}
_BLANKS = " \t\r\n"


def kinds_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The types of JSON that a schema may allow; `root` is what its references point into."""
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


def object_schema(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a tool's arguments, where it is only a reference to another."""
    if "$ref" not in parameters:
        return parameters
    found = resolved(parameters["$ref"], parameters)
    return found if isinstance(found, Mapping) else {}


def kinds_of_argument(parameters: Mapping[str, Any], key: str) -> frozenset[str]:
    """What an argument may be, by the schema of all of them."""
    given = object_schema(parameters)
    properties = given.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return kinds_of(known.get(key, given.get("additionalProperties")), parameters)


def listed(schema: Mapping[str, Any], *names: str) -> Iterable[list[Any]]:
    """The lists of schemas that a schema has under these names."""
    return [schema[name] for name in names if isinstance(schema.get(name), list)]


def resolved(reference: Any, root: Mapping[str, Any]) -> Any:
    """What a reference such as `#/$defs/Place` points to; anything if it is not there."""
    found: Any = root
    for name in str(reference).removeprefix("#").split("/")[1:]:
        plain = name.replace("~1", "/").replace("~0", "~")
        found = found.get(plain) if isinstance(found, Mapping) else None
    return found


def kind_of(text: str) -> str | None:
    """The type of JSON that a text is, if any."""
    if not json_text.is_value(text):
        return None
    digits = text.removeprefix("-")
    return _BY_FIRST.get(text[0], "integer" if digits.isdigit() else "number")


def as_json(text: str, kinds: frozenset[str]) -> str:
    """The JSON that a text stands for where a value may be of these kinds."""
    bare = text.strip(_BLANKS)
    bare = _PYTHONS.get(bare, bare)
    kind = kind_of(bare)
    is_said = kind in kinds and kind != "string"
    if is_said or (kind is not None and "string" not in kinds):
        return bare
    return f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """A piece of text as it stands in a string of JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _kinds_in(values: list[Any]) -> frozenset[str]:
    kinds = (kind_of(json.dumps(value)) for value in values)
    return frozenset(kind for kind in kinds if kind is not None)


def _named(names: Any) -> frozenset[str]:
    """The kinds that `type` names; words that mean nothing in a schema are passed over."""
    given = names if isinstance(names, list) else [names]
    found = frozenset(name for name in given if isinstance(name, str)) & ANY_KIND
    return (found | {"integer"} if "number" in found else found) or ANY_KIND
