"""Calls whose arguments stand between tags: what comes back is what was written."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.reply import (
    CallStyle,
    Content,
    Reasoning,
    ReplyParser,
    ReplyStyle,
    ToolCallArguments,
    ToolCallBegin,
    parse_reply,
    read_tools,
)
from ingot.reply.events import joined
from unit.reply.written_calls import THINK, TOOLS, Called, parts_of, write_calls

QWEN, GLM = ReplyStyle(CallStyle.QWEN_XML, THINK), ReplyStyle(CallStyle.GLM, THINK)
MINIMAX = ReplyStyle(CallStyle.MINIMAX, THINK)
TAGGED = st.sampled_from([QWEN, GLM, MINIMAX])
TAGS = ("</invoke>", "</parameter>", "</function>", "<parameter=", "</arg_value>", "</tool_call>")

KEYS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters='<>"\n'), min_size=1, max_size=20
)
TEXTS = st.text() | st.lists(
    st.sampled_from(["<", "</", "\n", " ", "<parameter>", "</param", "a", '"', "\\", "<arg_key>"])
).map("".join)
INNER = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
# A schema, and values that follow it.
KINDS: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "string"}, TEXTS),
    ({"enum": ["5", "true", "null"]}, st.sampled_from(["5", "true", "null"])),
    ({"type": "integer"}, st.integers()),
    ({"type": "number"}, st.floats(-1e9, 1e9) | st.integers()),
    ({"type": "boolean"}, st.booleans()),
    ({"type": ["boolean", "null"]}, st.none() | st.booleans()),
    ({"type": "array"}, st.lists(INNER, max_size=3)),
    ({"type": "object"}, st.dictionaries(st.text(max_size=4), INNER, max_size=3)),
    ({"anyOf": [{"$ref": "#/$defs/Lines"}, {"type": "null"}]}, st.none() | st.lists(TEXTS)),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, st.integers() | st.just(" a\n")),
    ({}, st.lists(INNER, max_size=3) | st.booleans() | st.integers() | st.just("words")),
]


@st.composite
def called(draw: st.DrawFn) -> tuple[dict[str, Any], Called]:
    """A schema of arguments, and a call that follows it."""
    kinds = draw(st.dictionaries(KEYS, st.sampled_from(KINDS), max_size=4))
    properties = {key: schema for key, (schema, _) in kinds.items()}
    arguments = {key: draw(values) for key, (_, values) in kinds.items()}
    lines = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "$defs": {"Lines": lines}}
    return schema, Called("f", arguments)


def holds_tags(call: Called) -> bool:
    return any(tag in json.dumps(call.arguments) for tag in TAGS)


@settings(max_examples=300)
@given(
    style=TAGGED,
    made=called(),
    before=st.sampled_from(["", "Hm."]),
    cuts=st.lists(st.integers(0, 9)),
)
def test_any_arguments_come_back(
    style: ReplyStyle, made: tuple[dict[str, Any], Called], before: str, cuts: list[int]
) -> None:
    schema, call = made
    if holds_tags(call):
        return
    text = before + write_calls([call, call], style)
    parser = ReplyParser(style, read_tools([{"name": "f", "parameters": schema}]))
    events, at = [], 0
    for size in cuts:
        events += parser.push(text[at : at + size])
        at += size
    reply = joined([*events, *parser.push(text[at:]), *parser.finish()])
    assert reply.content == before
    found = [Called(each.name, json.loads(each.arguments)) for each in reply.tool_calls]
    assert found == [call, call]


@pytest.mark.parametrize("style", [QWEN, GLM, MINIMAX])
def test_a_text_may_be_cut_anywhere(style: ReplyStyle) -> None:
    """The boundaries of pieces change nothing, and events of a text that is cut stay valid."""
    calls = [
        Called("get_weather", {"city": "a <b>\n</param\n\n", "days": 3}),
        Called("now", {}),
        Called("get_weather", {"unit": "C"}),
    ]
    text = "<think>\nHm.\n</think>\n\nI look. " + write_calls(calls, style)
    whole = parse_reply(text, style, TOOLS)
    assert (whole.reasoning, whole.content) == ("Hm.", "I look.")
    assert [json.loads(call.arguments) for call in whole.tool_calls] == [c.arguments for c in calls]
    for at in range(len(text)):
        parser = ReplyParser(style, TOOLS)
        events = [*parser.push(text[:at]), *parser.push(text[at:]), *parser.finish()]
        assert parts_of(joined(events)) == parts_of(whole)
        cut = parse_reply(text[:at], style, TOOLS)
        assert len(cut.tool_calls) <= len(whole.tool_calls)
        for part, call in zip(cut.tool_calls, whole.tool_calls, strict=False):
            assert part.name == call.name
            assert call.arguments.startswith(part.arguments)


QWEN_CALL = "<function=get_weather>\n<parameter=city>\n{}\n</parameter>\n</function>"
ROME = [("get_weather", '{"city": "Rome", "days": 2}')]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Without the marker before it, and without those after it.
        ("So:\n<function=now>\n</function>\n</tool_call>", ("So:", "", [("now", "{}")])),
        ("<function=now></function>", ("", "", [("now", "{}")])),
        ("<function=now>\n</function> Done.", ("Done.", "", [("now", "{}")])),
        ("<tool_call>\n<function=now>\n</tool_call>", ("", "", [("now", "{}")])),
        ("<tool_call><function=now></function><function=now></function></tool_call>.",
         (".", "", [("now", "{}")] * 2)),
        # Values that are not closed, or not on separate lines.
        ("<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n2\n</function>",
         ("", "", ROME)),
        ("<function=get_weather><parameter=city>Rome</parameter><parameter=days>2</parameter>"
         "</function>", ("", "", ROME)),
        ("<function=get_weather>\n<parameter=city>\nRome</parameter>\n<parameter=days>2</function>"
         "\n</tool_call>\n<tool_call>\n<function=now>\n</function>",
         ("", "", [*ROME, ("now", "{}")])),
        # Values that hold tags.
        (QWEN_CALL.format("<parameter>x</parameter>"),
         ("", "", [("get_weather", '{"city": "<parameter>x</parameter>"}')])),
        (QWEN_CALL.format("</function> </parameter></parameter>x"),
         ("", "", [("get_weather", '{"city": "</function> </parameter></parameter>x"}')])),
        # Values by their types.
        (QWEN_CALL.replace("city", "days").format("many"),
         ("", "", [("get_weather", '{"days": "many"}')])),
        (QWEN_CALL.replace("city", "days").format(" 2.0 "),
         ("", "", [("get_weather", '{"days": 2.0}')])),
        (QWEN_CALL.replace("city", "days").format("NaN"),
         ("", "", [("get_weather", '{"days": "NaN"}')])),
        (QWEN_CALL.replace("city", "sunny").format("True"),
         ("", "", [("get_weather", '{"sunny": true}')])),
        (QWEN_CALL.replace("city", "sunny").format("None"),
         ("", "", [("get_weather", '{"sunny": null}')])),
        (QWEN_CALL.replace("city", "sunny").format('"a"'),
         ("", "", [("get_weather", '{"sunny": "\\"a\\""}')])),
        (QWEN_CALL.format("None"), ("", "", [("get_weather", '{"city": "None"}')])),
        # No calls.
        ("I use <function=now> a lot", ("I use <function=now> a lot", "", [])),
        ("<function=nobody>\n</function>", ("<function=nobody>\n</function>", "", [])),
        ("<tool_call><tool_call>\n<function=now>\n</function>\n</tool_call>",
         ("<tool_call>", "", [("now", "{}")])),
        # The other forms that begin like it.
        ('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', ("", "", [("now", "{}")])),
        ("<tool_call>now</tool_call>", ("", "", [("now", "{}")])),
        ("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value>"
         "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>", ("", "", ROME)),
        ("<tool_call>get_weather\n<arg_key>city</arg_key> <arg_value>\n</arg_value> </tool_call>",
         ("", "", [("get_weather", '{"city": "\\n"}')])),
        # Texts that end too early.
        ("<function=get_weather>\n<parameter=city>\nRo\n</param",
         ("", "", [("get_weather", '{"city": "Ro')])),
        ("<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n12",
         ("", "", [("get_weather", '{"city": "Rome"')])),
    ],
)  # fmt: skip
def test_texts(text: str, expected: tuple[str, str, list[tuple[str, str]]]) -> None:
    assert parts_of(parse_reply(text, QWEN, TOOLS)) == expected


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('<minimax:tool_call><invoke name="get_weather"><parameter name="city">Rome</parameter>'
         '<parameter name="days">2</parameter></invoke></minimax:tool_call>', ROME),
        ('<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">\n</parameter>\n'
         "</invoke>\n", [("get_weather", '{"city": "\\n"}')]),
        ('<minimax:tool_call><minimax:tool_call>\n<invoke name="now">\n</invoke>', [("now", "{}")]),
    ],
)  # fmt: skip
def test_texts_of_minimax(text: str, calls: list[tuple[str, str]]) -> None:
    assert parts_of(parse_reply(text, MINIMAX, TOOLS))[2] == calls


def test_strings_come_as_they_are_written() -> None:
    parser = ReplyParser(QWEN, TOOLS)
    assert parser.push("<think>a") == [Reasoning("a")]
    assert parser.push("</think>I look.\n\n<tool_call>\n<func") == [Content("I look.")]
    assert parser.push("tion=get_weather>\n<parameter=") == []
    (begin, first) = parser.push("city>\nR")
    assert isinstance(begin, ToolCallBegin)
    assert begin.name == "get_weather"
    assert first == ToolCallArguments(0, '{"city": "R')
    assert parser.push('o"me\n') == [ToolCallArguments(0, 'o\\"me')]
    assert parser.push("</parameter>\n<parameter=days>\n") == [ToolCallArguments(0, '"')]
    assert parser.push("3\n</parameter>") == []
    assert parser.push("\n</function>\n") == [ToolCallArguments(0, ', "days": 3}')]
    assert [*parser.push("</tool_call>"), *parser.finish()] == []


def test_references_in_circles_and_schemas_that_are_none() -> None:
    schemas = [
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"properties": {"city": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"properties": {"city": {"type": [{}]}}},
        {"properties": {"city": {"$ref": 1}}},
        {"properties": ["city"]},
    ]
    for schema in schemas:
        tools = read_tools([{"name": "get_weather", "parameters": schema}])
        reply = parse_reply(QWEN_CALL.format("Rome"), QWEN, tools)
        assert parts_of(reply)[2] == [("get_weather", '{"city": "Rome"}')]
    model = {"properties": {"city": {"type": "string"}}}
    for schema in (
        {"$ref": "#/$defs/A", "$defs": {"A": model}},
        {"additionalProperties": {"type": "string"}},
    ):
        tools = read_tools([{"name": "get_weather", "parameters": schema}])
        assert parts_of(parse_reply(QWEN_CALL.format("5"), QWEN, tools))[2] == [
            ("get_weather", '{"city": "5"}')
        ]
