"""Under a grammar of calls in tags, arguments follow their schemas, whatever the model wants."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ingot.errors import ToolError
from ingot.reply import CallStyle, ReplyStyle, ToolChoice, parse_reply, read_tools, tool_grammar
from ingot.reply.style import ALL_MARKERS
from ingot.sampling import ChainBuilder, Grammar
from ingot.tokenizer import Tokenizer, TokenType
from unit.sampling.grammar_runs import accepts, write
from unit.tokenizer.small_vocabularies import byte_letters, write_vocabulary

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 2, "maxLength": 9, "pattern": "^/|\\.txt$"},
        "mode": {"oneOf": [{"const": "r"}, {"const": "w"}]},
        "note": {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "null"}]},
        "lines": {"$ref": "#/$defs/Lines"},
        "count": {"anyOf": [{"type": "integer", "minimum": 100}, {"$ref": "#/$defs/Word"}]},
        "size": {"allOf": [{"type": "string"}, {"maxLength": 3}, {"minLength": 3}]},
        "flag": {"type": "boolean"},
    },
    "required": ["path", "mode", "count"],
    "additionalProperties": False,
    "$defs": {
        "Lines": {"type": "array", "items": {"$ref": "#/$defs/Word"}, "maxItems": 2},
        "Word": {"type": "string", "maxLength": 4},
    },
}
STYLES = [CallStyle.QWEN_XML, CallStyle.GLM, CallStyle.MINIMAX]


@pytest.fixture(scope="module", params=[False, True], ids=["marks are text", "marks are tokens"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    """A vocabulary of the 256 bytes, an end, and perhaps the marks of calls."""
    path: Path = tmp_path_factory.mktemp("tagged") / "bytes.gguf"
    marks = [mark for mark in ALL_MARKERS if "tool_call>" in mark or "arg_" in mark]
    controls = [(mark, TokenType.CONTROL) for mark in ("<eos>", *(marks if request.param else []))]
    facts = {"merges": ["a b"], "pre": "gpt-2", "eos_token_id": 256}
    return Tokenizer.from_gguf(write_vocabulary(path, "gpt2", [*byte_letters(), *controls], facts))


@pytest.mark.parametrize("calls", STYLES)
def test_random_arguments_follow_their_schema(calls: CallStyle, tokenizer: Tokenizer) -> None:
    style = ReplyStyle(calls, controls=tokenizer.control_tokens())
    tools = read_tools([{"name": "open", "parameters": SCHEMA}])
    grammar = tool_grammar(style, tools, "required")
    assert grammar is not None
    builder = ChainBuilder(tokenizer)
    seen = set()
    for seed in range(12):
        text = write(builder, tokenizer, grammar, seed, max_tokens=2000)
        assert text is not None
        reply = parse_reply(text, style, tools)
        assert reply.content == ""
        for call in reply.tool_calls:
            arguments = json.loads(call.arguments)
            jsonschema.validate(arguments, SCHEMA)
            seen |= set(arguments)
    assert len(seen) > len(SCHEMA["required"])


@pytest.mark.parametrize("calls", STYLES)
def test_random_names_do_not_meet_known_ones(calls: CallStyle, tokenizer: Tokenizer) -> None:
    style = ReplyStyle(calls, controls=tokenizer.control_tokens())
    schema = {"properties": {"a": {"const": 1}}, "additionalProperties": {"enum": ["x", 5, None]}}
    tools = read_tools([{"name": "f", "parameters": schema}])
    grammar = tool_grammar(style, tools, "required", parallel=False)
    assert grammar is not None
    builder = ChainBuilder(tokenizer)
    seen = set()
    for seed in range(8):
        text = write(builder, tokenizer, grammar, seed, max_tokens=2000)
        assert text is not None
        (call,) = parse_reply(text, style, tools).tool_calls
        jsonschema.validate(json.loads(call.arguments), schema)
        seen |= set(json.loads(call.arguments).values())
    assert len(seen) > 1


def texts_allowed(schema: Any, style: ReplyStyle, tokenizer: Tokenizer, *values: str) -> list[bool]:
    """Which values of the one argument a call may have."""
    parameters = {"properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    tools = read_tools([{"name": "f", "parameters": parameters}])
    grammar = tool_grammar(style, tools, "required")
    assert grammar is not None
    form = "<tool_call>\n<function=f>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>"
    if style.calls is CallStyle.MINIMAX:
        form = (
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">{}</parameter>\n'
            "</invoke>\n</minimax:tool_call>"
        )
    if style.calls is CallStyle.GLM:
        form = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
    builder = ChainBuilder(tokenizer)
    return [accepts(builder, tokenizer, grammar, form.format(value)) for value in values]


@pytest.mark.parametrize("calls", STYLES)
@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (
            {"type": "string"},
            ["", "a", "5", "null", "é\n\n<b> [", '"'],
            ["</parameter>"],
        ),
        ({"type": "string", "pattern": "a/b"}, ["a/b", "xa/b\n"], ["ab"]),
        ({"type": "string", "pattern": "^\\d\\$"}, ["5$", "5$ and more"], ["a5$", "٣$"]),
        ({"enum": ["C", "°F"]}, ["C", "°F"], ["", "F", '"C"']),
        ({"enum": ["C", 1, None]}, ["C", "1", "null"], ["2", "D"]),
        ({"type": ["string", "null"], "maxLength": 10}, ["null", "2020-01-01", "nulls"], ["None"]),
        ({"type": ["string", "integer"], "maxLength": 3}, ["abc", "123456", "a1"], ["abcd", "1b"]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["abc", "123456", "1st"], []),
        ({"type": ["integer", "string"], "minimum": 7}, ["7", "-"], ["6", " 6", "-1"]),
        ({"type": ["string", "array"], "maxItems": 1}, ["[1]", "a[1, 2]"], ["[1, 2]", "[a"]),
        ({"type": "number"}, ["1.5", "-2"], ["", "a", " 1"]),
        ({"type": "array", "items": {"type": "integer"}}, ["[]", "[1, 2]"], ["[1,2]", '["a"]']),
        ({}, ["a", "5", "[true]", '{"a": null}', "[tru]"], []),
        (True, ["a", "5"], []),
    ],
)
def test_values_by_their_schema(
    schema: Any, right: list[str], wrong: list[str], calls: CallStyle, tokenizer: Tokenizer
) -> None:
    style = ReplyStyle(calls)  # marks as text, which is what `accepts` writes
    if calls is CallStyle.GLM:
        wrong = [value.replace("</parameter>", "</arg_value>") for value in wrong]
    assert texts_allowed(schema, style, tokenizer, *right) == [True] * len(right)
    assert texts_allowed(schema, style, tokenizer, *wrong) == [False] * len(wrong)


def test_names_that_no_schema_tells(tokenizer: Tokenizer) -> None:
    form = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
    argument = "<parameter={}>\n{}\n</parameter>\n"
    builder = ChainBuilder(tokenizer)
    free = {"properties": {"a": {"type": "integer"}}, "additionalProperties": True}
    for schema, strict, arguments, allowed in (
        ({"type": "object"}, True, "", True),
        ({"type": "object"}, True, argument.format("any name", "[1]"), True),
        (free, True, argument.format("b", "words"), True),
        (free, True, argument.format("a", "1") + argument.format("b", "words"), True),
        (free, True, argument.format("a", "1") + argument.format("a", "words"), False),
        (free, True, argument.format("a", "words"), False),
        (free, False, argument.format("a", "words"), True),
        ({"properties": {"a": {}}}, True, argument.format("b", "1"), False),
        ({"required": ["b"]}, True, "", False),
        ({"required": ["b"]}, True, argument.format("b", "1"), True),
        ({"properties": {"a": False, "b": {}}}, True, argument.format("a", "1"), False),
    ):
        tools = read_tools([{"name": "f", "parameters": schema, "strict": strict}])
        choice: ToolChoice = "required" if strict else "auto"
        grammar = tool_grammar(
            ReplyStyle(CallStyle.QWEN_XML), tools, choice, answer=Grammar.json_schema(True)
        )
        assert grammar is not None
        text = form.format(arguments)
        assert accepts(builder, tokenizer, grammar, text) is allowed, (schema, text)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
        {"patternProperties": {"^a": {}}},
        {"properties": {"a": {}}, "minProperties": 1},
        {"properties": {"<a>": {}}},
        {"properties": {"": {}}},
        {"properties": ["a"]},
        {"properties": {"a": {}}, "required": "a"},
    ],
)
def test_what_calls_cannot_be_held_to_is_refused(schema: dict[str, Any]) -> None:
    tools = read_tools([{"name": "f", "parameters": schema}])
    with pytest.raises(ToolError, match="'f'"):
        tool_grammar(ReplyStyle(CallStyle.QWEN_XML), tools, "required")
    assert tool_grammar(ReplyStyle(CallStyle.HERMES), tools, "required") is not None


def test_strings_that_texts_cannot_be_held_to_are_refused() -> None:
    schema = {"properties": {"a": {"type": "string", "not": {"const": "b"}}}}
    tools = read_tools([{"name": "f", "parameters": schema}])
    with pytest.raises(ToolError, match="'not'"):
        tool_grammar(ReplyStyle(CallStyle.QWEN_XML), tools, "required")


def test_names_that_end_where_they_are_quoted() -> None:
    tools = read_tools([{"name": "f", "parameters": {"properties": {'"a"': {}}}}])
    assert tool_grammar(ReplyStyle(CallStyle.QWEN_XML), tools, "required") is not None
    with pytest.raises(ToolError, match="parameter"):
        tool_grammar(ReplyStyle(CallStyle.MINIMAX), tools, "required")
