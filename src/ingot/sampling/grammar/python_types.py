"""Python types as JSON schemas, and JSON as objects of these types.

In: a pydantic model, a dataclass, or a type of its fields: str, int, float, bool, None, date,
datetime, time, UUID, list, tuple, dict, Literal, enumerations, unions, Annotated, dataclasses and
pydantic models. Out: a schema, and an object from a text that follows it. pydantic does both for
its own models; the others do not need it.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from ingot.errors import GrammarError
from ingot.sampling.grammar.schema_defaults import closed
from ingot.sampling.grammar.spec import Grammar

Schema = dict[str, Any]

_PLAIN: Mapping[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null", None: "null",
}  # fmt: skip
# Types that JSON has as strings: the format, and how such a string is read.
_FORMATS: Mapping[object, tuple[str, Callable[[str], object]]] = MappingProxyType(
    {
        date: ("date", date.fromisoformat),
        datetime: ("date-time", datetime.fromisoformat),
        time: ("time", time.fromisoformat),
        UUID: ("uuid", UUID),
    }
)
_LISTS = (list, Sequence)
_MAPPINGS = (dict, Mapping)


def grammar_of(schema: type | Mapping[str, object]) -> Grammar:
    """The grammar of JSON that follows a schema or describes an object of a type."""
    return Grammar.json_schema(schema if isinstance(schema, Mapping) else schema_of(schema))


def schema_of(kind: type) -> Schema:
    """The JSON schema of a type, without keys that it does not declare.

    A pydantic model whose configuration says `extra="allow"` may have others.
    """
    if _is_pydantic(kind):
        return closed(kind.model_json_schema())  # type: ignore[attr-defined]
    definitions: dict[str, Schema] = {}
    return _with_definitions(_schema(kind, definitions), definitions)


def schema_of_fields(hints: Mapping[str, Any], required: Iterable[str]) -> Schema:
    """The JSON schema of an object with fields of these types."""
    definitions: dict[str, Schema] = {}
    return _with_definitions(_object_schema(hints, required, definitions), definitions)


def parse_as(schema: type | Mapping[str, object], text: str) -> Any:
    """The value of a JSON text: an object of the type, or plain data if `schema` is a mapping."""
    if _is_pydantic(schema):
        return schema.model_validate_json(text)  # type: ignore[union-attr]
    try:
        value = json.loads(text)
    except ValueError as error:
        raise GrammarError(f"the text is not valid JSON: {error}") from None
    return value if isinstance(schema, Mapping) else convert(schema, value)


def _is_pydantic(kind: object) -> bool:
    module = sys.modules.get("pydantic")  # a caller with a model has imported it
    return module is not None and isinstance(kind, type) and issubclass(kind, module.BaseModel)


def _leaf_schema(kind: Any) -> Schema | None:
    """The schema of a type without parts; None if it has parts."""
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind in _FORMATS:
        return {"type": "string", "format": _FORMATS[kind][0]}
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    return None


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    if (leaf := _leaf_schema(kind)) is not None:
        return leaf
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _described(_schema(arguments[0], definitions), arguments[1:])
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(option, definitions) for option in arguments]}
    if kind in _LISTS or origin in _LISTS:
        items = _schema(arguments[0], definitions) if arguments else {}
        return {"type": "array", "items": items}
    if origin is tuple:
        return _tuple_schema(arguments, definitions)
    if kind in _MAPPINGS or origin in _MAPPINGS:
        values = _schema(arguments[1], definitions) if arguments else {}
        return {"type": "object", "additionalProperties": values}
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_schema(kind, definitions)
    if _is_pydantic(kind):
        return _pydantic_schema(kind, definitions)
    raise GrammarError(f"{kind!r} has no JSON schema: use a pydantic model or a dataclass")


def _described(schema: Schema, notes: tuple[Any, ...]) -> Schema:
    """A schema with the description that the notes of an `Annotated` type give."""
    for note in notes:
        text = note if isinstance(note, str) else getattr(note, "description", None)
        if isinstance(text, str):
            return {**schema, "description": text}
    return schema


def _pydantic_schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    schema = closed(kind.model_json_schema())
    definitions |= schema.pop("$defs", {})
    definitions[kind.__name__] = schema
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _with_definitions(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    return {**schema, "$defs": definitions} if definitions else schema


def _object_schema(
    hints: Mapping[str, Any], required: Iterable[str], definitions: dict[str, Schema]
) -> Schema:
    return {
        "type": "object",
        "properties": {name: _schema(kind, definitions) for name, kind in hints.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def _tuple_schema(arguments: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    items = [_schema(argument, definitions) for argument in arguments]
    size = len(items)
    return {
        "type": "array", "prefixItems": items, "items": False, "minItems": size, "maxItems": size,
    }  # fmt: skip


def _dataclass_schema(kind: type, definitions: dict[str, Schema]) -> Schema:
    """A reference, because a dataclass may contain objects of its own type."""
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # present before its fields, which may refer to it
        hints = get_type_hints(kind, include_extras=True)
        entries = [entry for entry in fields(kind) if entry.init]
        definitions[name] = _object_schema(
            {entry.name: hints[entry.name] for entry in entries},
            [entry.name for entry in entries if not _has_default(entry)],
            definitions,
        )
    return {"$ref": f"#/$defs/{name}"}


def _has_default(entry: Any) -> bool:
    return entry.default is not MISSING or entry.default_factory is not MISSING


def convert(kind: Any, value: Any) -> Any:
    """A JSON value as an object of a type; `GrammarError` if it does not fit."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return convert(arguments[0], value)
    if _is_pydantic(kind):
        return _from_pydantic(kind, value)
    if kind in _FORMATS and isinstance(value, str):
        return _made(_FORMATS[kind][1], value)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return _dataclass_of(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _made(kind, value)
    if origin in (Union, UnionType):
        return _convert_union(arguments, value)
    if origin in _LISTS and isinstance(value, list):
        return [convert(arguments[0], part) for part in value]
    if origin is tuple and isinstance(value, list):
        kinds = arguments
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            kinds = (arguments[0],) * len(value)
        return tuple(convert(part_kind, part) for part_kind, part in zip(kinds, value, strict=True))
    if origin in _MAPPINGS and isinstance(value, dict):
        return {name: convert(arguments[1], part) for name, part in value.items()}
    if not _fits(kind, value):
        raise GrammarError(f"{value!r} is not of type {kind}")
    return float(value) if kind is float else value


def _dataclass_of(kind: type, value: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    known = {entry.name for entry in fields(kind) if entry.init}
    if not value.keys() <= known:
        raise GrammarError(f"{kind.__name__} has no field {min(value.keys() - known)!r}")
    try:
        return kind(**{name: convert(hints[name], part) for name, part in value.items()})
    except TypeError as error:
        raise GrammarError(f"{kind.__name__} cannot be created: {error}") from None


def _made(kind: Callable[[Any], Any], value: object) -> Any:
    try:
        return kind(value)
    except ValueError as error:  # 2024-02-31 has the form of a date but is none
        raise GrammarError(f"{value!r} is not valid: {error}") from None


def _from_pydantic(kind: Any, value: object) -> Any:
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise GrammarError(f"{kind.__name__} cannot be created: {error}") from None


def _fits(kind: Any, value: Any) -> bool:
    if kind is Any:
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is None or kind is NoneType:
        return value is None
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _convert_union(options: tuple[Any, ...], value: Any) -> Any:
    """Convert to the first type that the value fits."""
    for option in options:
        try:
            return convert(option, value)
        except (GrammarError, ValueError, TypeError):
            continue
    raise GrammarError(f"{value!r} fits none of {options}")
