"""Structured outputs in a request's body, under the names of llama-server, vLLM and SGLang.

Fields come in, the `Grammar` that they ask for goes out. Only one of them may be given.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ingot.sampling import Grammar
from ingot.server.body_limits import Many
from ingot.server.errors import ApiError

JsonSchema = dict[str, Any] | bool | str
Choice = Annotated[Many[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


class StructuredOutputs(BaseModel):
    """vLLM's `structured_outputs`: one of these."""

    model_config = ConfigDict(strict=True, extra="forbid")

    json_: Annotated[JsonSchema | None, Field(alias="json")] = None
    regex: str | None = None
    choice: Choice | None = None
    grammar: str | None = None
    json_object: bool | None = None


# All fields, with their types.
FIELDS: dict[str, Any] = {
    "grammar": str,  # llama-server's, in GBNF
    "json_schema": JsonSchema,  # llama-server's; SGLang sends it as text
    "ebnf": str,  # SGLang's
    "regex": str,  # SGLang's
    "guided_json": JsonSchema,  # vLLM's older names
    "guided_choice": Choice,
    "guided_regex": str,
    "guided_grammar": str,
    "structured_outputs": StructuredOutputs,  # vLLM's newer name
}


def grammar_of(given: Mapping[str, Any]) -> Grammar | None:
    """The grammar that the fields of a body ask for."""
    named = {name: given.get(name) for name in FIELDS}
    outputs = named.pop("structured_outputs")
    if isinstance(outputs, StructuredOutputs):
        named |= {f"structured_outputs.{name}": value for name, value in outputs}
    asked = {name: value for name, value in named.items() if value not in (None, "")}
    asked = {name: value for name, value in asked.items() if not _is_unset(name, value)}
    if not asked:
        return None
    (name, value), *others = asked.items()
    if others:
        raise ApiError(
            400, f"{others[0][0].rstrip('_')} and {name} cannot be combined", param=others[0][0]
        )
    match name.rpartition(".")[2].removeprefix("guided_"):
        case "json_schema" | "json" | "json_":
            return Grammar.json_schema(value)
        case "json_object":
            return Grammar.json_schema({"type": "object"})
        case "regex":
            return Grammar.regex(value)
        case "choice":
            return Grammar.choices(value)
        case _:
            return _by_rules(value)


def _is_unset(name: str, value: object) -> bool:
    return name.endswith("json_object") and value is False


def _by_rules(text: str) -> Grammar:
    """GBNF (EBNF with `::=`), or llguidance's Lark."""
    return Grammar.gbnf(text) if "::=" in text else Grammar.lark(text)
