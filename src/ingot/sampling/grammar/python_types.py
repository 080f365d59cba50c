"""Python types as JSON schemas, and JSON as objects of these types.

In: a pydantic model, a dataclass, or a type of its fields: str, int, float, bool, None, list,
tuple, dict, Literal, enumerations, unions, and other dataclasses. Out: a schema, and an object
from a text that follows it. pydantic does both for its own models; the others do not need it.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ingot.errors import GrammarError
from ingot.sampling.grammar.schema_defaults import closed
from ingot.sampling.grammar.spec import Grammar

Schema = dict[str, Any]

_PLAIN: Mapping[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null", None: "null",
}  # fmt: skip


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
    schema: Schema = _schema(kind, definitions)
    return {**schema, "$defs": definitions} if definitions else schema


def parse_as(schema: type | Mapping[str, object], text: str) -> Any:
    """The value of a JSON text: an object of the type, or plain data if `schema` is a mapping."""
    if _is_pydantic(schema):
        return schema.model_validate_json(text)  # type: ignore[union-attr]
    try:
        value = json.loads(text)
    except ValueError as error:
        raise GrammarError(f"the text is not valid JSON: {error}") from None
    return value if isinstance(schema, Mapping) else _convert(schema, value)


def _is_pydantic(kind: object) -> bool:
    module = sys.modules.get("pydantic")  # a caller with a model has imported it
    return module is not None and isinstance(kind, type) and issubclass(kind, module.BaseModel)


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(option, definitions) for option in arguments]}
    if kind is list or origin is list:
        items = _schema(arguments[0], definitions) if arguments else {}
        return {"type": "array", "items": items}
    if origin is tuple:
        return _tuple_schema(arguments, definitions)
    if kind is dict or origin is dict:
        values = _schema(arguments[1], definitions) if arguments else {}
        return {"type": "object", "additionalProperties": values}
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_schema(kind, definitions)
    if _is_pydantic(kind):
        raise GrammarError(
            f"{kind.__name__}: a pydantic model can only be a field of a pydantic model"
        )
    raise GrammarError(f"{kind!r} has no JSON schema: use a pydantic model or a dataclass")


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
        hints = get_type_hints(kind)
        entries = [entry for entry in fields(kind) if entry.init]
        definitions[name] = {
            "type": "object",
            "properties": {e.name: _schema(hints[e.name], definitions) for e in entries},
            "required": [e.name for e in entries if not _has_default(e)],
            "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}


def _has_default(entry: Any) -> bool:
    return entry.default is not MISSING or entry.default_factory is not MISSING


def _convert(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = get_type_hints(kind)
        known = {entry.name for entry in fields(kind) if entry.init}
        if not value.keys() <= known:
            raise GrammarError(f"{kind.__name__} has no field {min(value.keys() - known)!r}")
        try:
            return kind(**{name: _convert(hints[name], part) for name, part in value.items()})
        except TypeError as error:
            raise GrammarError(f"{kind.__name__} cannot be created: {error}") from None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if origin in (Union, UnionType):
        return _convert_union(arguments, value)
    if origin is list and isinstance(value, list):
        return [_convert(arguments[0], part) for part in value]
    if origin is tuple and isinstance(value, list):
        kinds = arguments
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            kinds = (arguments[0],) * len(value)
        return tuple(
            _convert(part_kind, part) for part_kind, part in zip(kinds, value, strict=True)
        )
    if origin is dict and isinstance(value, dict):
        return {name: _convert(arguments[1], part) for name, part in value.items()}
    if not _fits(kind, value):
        raise GrammarError(f"{value!r} is not of type {kind}")
    return float(value) if kind is float else value


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
            return _convert(option, value)
        except (GrammarError, ValueError, TypeError):
            continue
    raise GrammarError(f"{value!r} fits none of {options}")
