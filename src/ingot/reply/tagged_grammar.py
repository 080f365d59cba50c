"""Rules in Lark for calls with arguments between tags (see tagged_arguments.py).

In: the name of a tool and the schema of its arguments. Out: the rule of a call and the rules that
it uses. Arguments come in the order of their schema. A string is any text that its schema allows
and that contains no tag. If a parameter allows other types, too, the string must not read like a
value of these, or begin like one. `format` of a string is ignored, and a string that is no part of
JSON has no default limit, because the tag after it and a count make too large a lexer. Schemas that
say more about an object than its properties are refused.
"""

from collections.abc import Mapping

from ingot.errors import ToolError
from ingot.reply import lark_parts as lark
from ingot.reply.argument_values import DEEPEST, kinds_of, listed, object_schema, resolved
from ingot.reply.style import ReplyStyle
from ingot.reply.tagged_arguments import Tags
from ingot.sampling.grammar.lark_source import regex_to_lark
from ingot.sampling.grammar.schema_defaults import bounded

_ANY_TEXT = "/(?s:.*)/"
_MOST_OTHERS = 16  # arguments that a schema does not name
# Keywords of objects that rules cannot enforce in a simple way.
_REFUSED = (
    "allOf", "anyOf", "const", "dependencies", "dependentRequired", "dependentSchemas", "enum",
    "if", "maxProperties", "minProperties", "not", "oneOf", "patternProperties", "propertyNames",
)  # fmt: skip
# How texts begin that are read as another type than a string.
_BEGINNINGS = {
    "boolean": "true|false|True|False",
    "integer": "-?[0-9]",
    "number": "-?[0-9]",
    "array": r"\[",
    "object": r"\{",
}
_NULL = "null|None"
_BLANKS = r"[ \t\r\n]*"
# Keywords that constrain only the type, or nothing.
_MILD = frozenset(
    {
        "type",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "$comment",
        "$ref",
        "anyOf",
    }
)


class TaggedCall:
    """Writes the rules of the calls of one tool; `number` makes their names unique."""

    def __init__(self, style: ReplyStyle, tags: Tags, number: int, name: str) -> None:
        self._style = style
        self._tags = tags
        self._number = number
        self._name = name
        self._line = lark.text("\n") if tags.on_lines else '"\\n"?'
        self._rules: list[str] = []

    def rules(self, schema: Mapping[str, object] | None) -> list[str]:
        """The rule of the call and those it uses; without a schema, any arguments are allowed."""
        parts = self._any_arguments() if schema is None else self._arguments(schema)
        if self._tags.name:
            parts = [lark.text(f"{self._tags.name}{self._name}{self._tags.named}\n"), *parts]
            parts.append(lark.text(f"{self._tags.end}\n"))
        else:
            parts = [lark.text(self._name), self._line, *parts]
        return [f"call{self._number}: {' '.join(parts)}", *self._rules]

    def _any_arguments(self) -> list[str]:
        self._rule_of_text("any", _ANY_TEXT)
        return [self._others([], self._named("any"))]

    def _arguments(self, schema: Mapping[str, object]) -> list[str]:
        given = object_schema(schema)
        for keyword in _REFUSED:
            if keyword in given:
                raise ToolError(
                    f"the parameters of tool {self._name!r} have {keyword!r}, which cannot be "
                    "enforced in the call format of this model; describe them by properties only"
                )
        properties, required = given.get("properties") or {}, given.get("required") or []
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise ToolError(f"the parameters of tool {self._name!r} are not a JSON schema")
        others = given.get("additionalProperties", not properties)
        properties = {**dict.fromkeys(required, others), **properties}
        parts = []
        for index, (key, value) in enumerate(properties.items()):
            if value is False and key not in required:
                continue
            if not key or any(char in key for char in self._tags.no_key):
                raise ToolError(
                    f"tool {self._name!r} has a parameter {key!r}, which the call format of this "
                    "model cannot express; give it a name of letters and digits"
                )
            self._rule_of_value(str(index), value, schema)
            argument = self._argument(lark.text(key), self._named(str(index)))
            parts.append(argument if key in required else f"({argument})?")
        if others is not False:
            self._rule_of_value("other", others, schema)
            parts.append(self._others(list(properties), self._named("other")))
        return parts

    def _named(self, which: str) -> str:
        return f"value{self._number}_{which}"

    def _argument(self, key: str, value: str) -> str:
        """One argument, from the rules of its key and of its value."""
        opening, *between = self._tags.keyed
        if self._tags.on_lines:
            return f"{lark.text(self._tags.key)} {key} {lark.text(opening)} {self._line} {value}"
        parts = [lark.marker(self._style, self._tags.key), key, lark.marker(self._style, opening)]
        for mark in between:
            parts += [self._line, lark.marker(self._style, mark)]
        return " ".join([*parts, value])

    def _others(self, known: list[str], value: str) -> str:
        """Arguments with other names than the known ones."""
        key = f"KEY{self._number}"
        rule = f"{key}: /[^{self._tags.no_key}]{{1,64}}/"
        if known:
            rule += f" & ~({' | '.join(map(lark.text, known))})"
        self._rules.append(rule)
        return f"({self._argument(key, value)}){{0,{_MOST_OTHERS}}}"

    def _rule_of_value(self, which: str, schema: object, root: Mapping[str, object]) -> None:
        """Add the rule of a value, to the end of its line."""
        schema = schema if isinstance(schema, Mapping) else {}
        kinds = kinds_of(schema, root)
        if "string" in kinds and _is_mild(schema, root):
            self._rule_of_text(which, _ANY_TEXT)
            return
        texts = texts_by(schema, root) if "string" in kinds else None
        if texts is None:
            self._rule_of_json(which, schema, root)
            return
        # Texts that begin like JSON are excluded: while one can continue, JSON would never end.
        others = sorted(kinds - {"string", "null"})
        for kind in others:
            texts += f" & ~/(?s:{_BLANKS}({_BEGINNINGS[kind]}).*)/"
        if "null" in kinds:
            texts = f'({texts} & ~/{_BLANKS}({_NULL}){_BLANKS}/ | "null")'
        if not others:
            self._rule_of_text(which, texts)
            return
        self._rule_of_text(f"{which}_text", texts)
        self._rule_of_json(f"{which}_json", {**schema, "type": others}, root)
        either = f"{self._named(f'{which}_text')} | {self._named(f'{which}_json')}"
        self._rules.append(f"{self._named(which)}: {either}")

    def _rule_of_text(self, which: str, texts: str) -> None:
        name = self._named(which)
        tags = "|".join(tag.replace("/", r"\/") for tag in self._tags.no_text)
        no_tags = f"{_ANY_TEXT} & ~/(?s:.*)({tags})(?s:.*)/"
        end = self._end()
        lazy = "" if end.startswith("<") else "[lazy]"  # a control token always ends a text
        self._rules += [
            f"{name.upper()}: {texts} & {no_tags}",
            f"{name}_closed{lazy}: {name.upper()} {end}",
            f"{name}: {name}_closed {self._line}",
        ]

    def _rule_of_json(
        self, which: str, schema: Mapping[str, object], root: Mapping[str, object]
    ) -> None:
        definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
        rule = lark.json_by(bounded({**schema, **definitions}))
        name = self._named(which)
        self._rules += [f"{name}: {name}_json {self._end()} {self._line}", f"{name}_json: {rule}"]

    def _end(self) -> str:
        """The tag directly after a value."""
        if self._tags.on_lines:
            return lark.text(f"\n{self._tags.value_end}")
        return lark.marker(self._style, self._tags.value_end)


def texts_by(schema: object, root: Mapping[str, object], depth: int = 0) -> str | None:
    """The strings that a schema allows, as a terminal; None if it allows no strings."""
    if not isinstance(schema, Mapping) or depth == DEEPEST:
        return _ANY_TEXT
    if "string" not in kinds_of(schema, root):
        return None
    for keyword in ("if", "not"):
        if keyword in schema:
            raise ToolError(
                f"a parameter has {keyword!r}, which cannot be enforced for strings in the call "
                "format of this model; describe what is allowed instead"
            )
    parts: list[str | None] = [_plain_texts(schema)]
    if isinstance(schema.get("const"), str):
        parts.append(lark.text(schema["const"]))
    for values in listed(schema, "enum"):
        parts.append(" | ".join(lark.text(value) for value in values if isinstance(value, str)))
    if "$ref" in schema:
        parts.append(texts_by(resolved(schema["$ref"], root), root, depth + 1))
    for options in listed(schema, "anyOf", "oneOf"):
        allowed = (texts_by(option, root, depth + 1) for option in options)
        parts.append(" | ".join(texts for texts in allowed if texts is not None))
    for every in listed(schema, "allOf"):
        parts += [texts_by(part, root, depth + 1) for part in every]
    return " & ".join(f"({part})" for part in parts if part)


def _is_mild(schema: object, root: Mapping[str, object], depth: int = 0) -> bool:
    """Whether a schema constrains only types, so that any text is read as an allowed value."""
    if not isinstance(schema, Mapping):
        return schema is not False
    if depth == DEEPEST or not _MILD.issuperset(schema):
        return False
    parts = [option for options in listed(schema, "anyOf") for option in options]
    if "$ref" in schema:
        parts.append(resolved(schema["$ref"], root))
    return all(_is_mild(part, root, depth + 1) for part in parts)


def _plain_texts(schema: Mapping[str, object]) -> str:
    """The texts that `minLength`, `maxLength` and `pattern` allow."""
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    texts = f"/(?s:.{{{least},{most}}})/" if least or most != "" else _ANY_TEXT
    if isinstance(pattern := schema.get("pattern"), str):
        texts += f" & {_matching(pattern)}"
    return texts


def _matching(pattern: str) -> str:
    """Texts that contain a match; an anchor of one alternative applies to all of them."""
    before, after = "(?s:.*)", "(?s:.*)"
    if pattern.startswith("^"):
        pattern, before = pattern[1:], ""
    bare = pattern.removesuffix("$")
    if bare != pattern and (len(bare) - len(bare.rstrip("\\"))) % 2 == 0:
        pattern, after = bare, ""
    return f"/{before}(?:{regex_to_lark(pattern)}){after}/"
