"""What texts say, whole and in pieces, in every style."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.reply import (
    CallStyle,
    Content,
    Marks,
    Reasoning,
    Reply,
    ReplyParser,
    ReplyStyle,
    ToolCallArguments,
    ToolCallBegin,
    parse_reply,
    read_tools,
)
from ingot.reply.events import joined
from unit.reply.written_calls import THINK, TOOLS, Called, parts_of, write_calls

HERMES = ReplyStyle(CallStyle.HERMES, THINK)
HARMONY = ReplyStyle(CallStyle.HARMONY)
JSON = ReplyStyle(CallStyle.JSON)
LLAMA3 = ReplyStyle(CallStyle.LLAMA3)

WORDS = st.text(string.ascii_letters + " \n.é", max_size=12).map(str.strip)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
CALLS = st.lists(
    st.builds(
        Called,
        st.sampled_from([tool.name for tool in TOOLS if tool.name.isascii()]),
        st.dictionaries(st.text(max_size=6), VALUES, max_size=3),
    ),
    min_size=1,
    max_size=3,
)
# Texts in which much looks like something else.
SCRAPS = st.lists(
    st.sampled_from(
        [
            "<", "</", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_", "[", "]",
            "{", "}", '"', ":", ",", ";", "\\", "```", "```json", "null", "1", "-", "1.5e3",
            '{"name": "now"', '"arguments": {', '{"name": "now", "arguments": {}}', '"name": ',
            '{"name": "none", "parameters": {"a": [1, {"b": "c"}]}}', "now", "get_weather",
            "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|tool_call|>", "<|/tool_call|>",
            "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "function",
            "<function=", "<function=now>", "</function>", "<parameter=", "<parameter=city>",
            "</parameter>", "<function=get_weather>\n<parameter=city>\n", "\n</parameter>\n",
            "<arg_key>", "<arg_key>days</arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
            "<minimax:tool_call>", "</minimax:tool_call>", '<invoke name="now">', "</invoke>",
            '<invoke name="get_weather"><parameter name="city">', '<parameter name="',
            "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>",
            "functions.now:0", "<|tool_call_argument_begin|>", "<|tool_calls_section_end|>",
            "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>",
            "assistant", "analysis", "final",
            "commentary to=functions.now ", " to=functions.now", "json", "\n", " ", "a", "é",
        ]
    )
).map("".join)  # fmt: skip


def in_pieces(text: str, cuts: list[int], style: ReplyStyle, begun: bool = False) -> Reply:
    parser = ReplyParser(style, TOOLS, begins_in_reasoning=begun)
    events, at = [], 0
    for size in cuts:
        events += parser.push(text[at : at + size])
        at += size
    events += [*parser.push(text[at:]), *parser.finish()]
    return joined(events)


ANY_STYLE = st.builds(
    ReplyStyle,
    st.sampled_from(CallStyle),
    st.sampled_from([None, THINK, Marks("[THINK]", "[/THINK]")]),
)


@settings(max_examples=400)
@given(style=ANY_STYLE, text=SCRAPS, cuts=st.lists(st.integers(0, 9)), begun=st.booleans())
def test_borders_of_pieces_change_nothing(
    style: ReplyStyle, text: str, cuts: list[int], begun: bool
) -> None:
    whole = parse_reply(text, style, TOOLS, begins_in_reasoning=begun)
    assert parts_of(in_pieces(text, cuts, style, begun)) == parts_of(whole)
    assert parts_of(in_pieces(text, [1] * len(text), style, begun)) == parts_of(whole)


@given(calls=st.sampled_from(CallStyle), text=SCRAPS)
def test_without_a_call_the_text_is_the_answer(calls: CallStyle, text: str) -> None:
    if calls is not CallStyle.HARMONY:  # which leaves out the headers of its messages
        reply = parse_reply(text, ReplyStyle(calls), read_tools([{"name": "unheard of"}]))
        assert parts_of(reply) == (text, "", [])


@pytest.mark.parametrize("calls", CallStyle)
def test_nobody_calls_what_is_no_tool(calls: CallStyle) -> None:
    text = write_calls([Called("nobody", {"a": 1})], ReplyStyle(calls))
    shown = text.removesuffix("<|call|>")  # the end of a message
    assert parts_of(parse_reply(text, ReplyStyle(calls), TOOLS)) == (shown, "", [])


@settings(max_examples=200)
@given(style=ANY_STYLE, text=SCRAPS)
def test_what_comes_out_stood_in_the_text(style: ReplyStyle, text: str) -> None:
    """In its order, each character once."""
    parser = ReplyParser(style, TOOLS)
    rest = iter(text)
    for event in [*parser.push(text), *parser.finish()]:
        if isinstance(event, Content | Reasoning):
            assert all(char in rest for char in event.text), (event, text)


# Forms whose arguments are an object as it is; for the others see test_tagged_calls.py.
IN_TAGS = (CallStyle.QWEN_XML, CallStyle.GLM, CallStyle.MINIMAX)
IN_JSON = [calls for calls in CallStyle if calls not in IN_TAGS]


@settings(max_examples=200)
@given(style=st.builds(ReplyStyle, st.sampled_from(IN_JSON)), before=WORDS, calls=CALLS)
def test_calls_are_read_back(style: ReplyStyle, before: str, calls: list[Called]) -> None:
    shown = before
    match style.calls:
        case CallStyle.LLAMA3 | CallStyle.JSON:
            shown = before = ""  # their calls have no marker that could follow words
        case CallStyle.HARMONY if before:
            shown = f"<|channel|>commentary<|message|>{before}<|end|><|start|>assistant"
    text = shown + write_calls(calls, style)
    reply = parse_reply(text, style, TOOLS)
    assert reply.content == before
    found = [Called(call.name, json.loads(call.arguments)) for call in reply.tool_calls]
    assert found == calls
    assert len({call.id for call in reply.tool_calls}) == len(calls)


@pytest.mark.parametrize(
    ("style", "text", "expected"),
    [
        (HERMES, "<think>\nHm.\n\nYes.\n</think>\n\nSo.\n", ("So.\n", "Hm.\n\nYes.", [])),
        (HERMES, " <think>a < b</thin</think>c</think>", ("c</think>", "a < b</thin", [])),
        (HERMES, "<think>never closed ", ("", "never closed ", [])),
        (HERMES, "No. <think>late</think>", ("No. <think>late</think>", "", [])),
        (HERMES, '<tool_call>[{"name": "now"}]</tool_call>', ("", "", [("now", "{}")])),
        (HERMES, '<tool_call>{"name": "now"}</tool_call>.', (".", "", [("now", "{}")])),
        (HERMES, 'So: <tool_call>{"name": "now"}</tool_call> \n', ("So:", "", [("now", "{}")])),
        (HERMES, "<tool_call><tool_call>{\"name\": \"now\"}</tool_call>",
         ("<tool_call>", "", [("now", "{}")])),
        (HERMES, '<tool_call>{"name": "now", "arguments": 1}</tool_call>',
         ('<tool_call>{"name": "now", "arguments": 1}</tool_call>', "", [])),
        (HERMES, '<tool_call>{"arguments": {"a": 1}, "id": [2], "name": "now"}</tool_call>',
         ("", "", [("now", '{"a": 1}')])),
        (HERMES, '<tool_call>{"name": "now", "arguments": {"a": tru}}</tool_call>',
         ("}}</tool_call>", "", [("now", '{"a": tru')])),
        (HERMES, '<tool_call>{"name": "now", "arguments": {"a": "cut',
         ("", "", [("now", '{"a": "cut')])),
        (LLAMA3, '<|python_tag|>{"name": "now", "parameters": {}}', ("", "", [("now", "{}")])),
        (LLAMA3, 'Like {"name": "now"}', ('Like {"name": "now"}', "", [])),
        (LLAMA3, '<|python_tag|>search.call(query="a")',
         ('<|python_tag|>search.call(query="a")', "", [])),
        (JSON, '```json\n{"name": "now"}\n```', ("", "", [("now", "{}")])),
        (JSON, '```\n[{"name": "now"}, {"name": "now"}]\n```', ("", "", [("now", "{}")] * 2)),
        (JSON, '{"name": "now"}; then', ("; then", "", [("now", "{}")])),
        (JSON, '{"name": "Bob", "age": 3}', ('{"name": "Bob", "age": 3}', "", [])),
        (ReplyStyle(CallStyle.GRANITE), '<|tool_call|>[{"name": "now"}]<|/tool_call|>',
         ("", "", [("now", "{}")])),
        (ReplyStyle(CallStyle.KIMI), "<|tool_calls_section_begin|>\n<|tool_call_begin|>now:3"
         "<|tool_call_argument_begin|> {}\n<|tool_call_end|>\n<|tool_calls_section_end|>.",
         (".", "", [("now", "{}")])),
        (HARMONY, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
         "<|message|>So<br>.<|return|>", ("So<br>.", "Hm.", [])),
        (HARMONY, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.now"
         "<|channel|>commentary json<|message|>{}", ("", "Hm.", [("now", "{}")])),
        (HARMONY, "<|channel|>commentary<|message|>I look.<|end|>", ("I look.", "", [])),
        (HARMONY, "<|channel|>final <|constrain|>json<|message|>[1]", ("[1]", "", [])),
        (HARMONY, "Plain words.", ("Plain words.", "", [])),
        (HARMONY, "<|channel|>commentary to=python<|message|>1<|call|>",
         ("<|channel|>commentary to=python<|message|>1", "", [])),
    ],
)  # fmt: skip
def test_texts(
    style: ReplyStyle, text: str, expected: tuple[str, str, list[tuple[str, str]]]
) -> None:
    assert parts_of(parse_reply(text, style, TOOLS)) == expected


CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
WITHOUT_MARKER = {
    "an object": CALL,
    "a list": f"[{CALL}]",
    "a fence": f"```\n{CALL}\n```",
    "a fence with a language": f"```json\n{CALL}\n```",
    "other tags": f"<tools>{CALL}</tools>",
    "the usual tags": f"<tool_call>\n{CALL}\n</tool_call>",
}
NOT_HARMONY = [calls for calls in CallStyle if calls is not CallStyle.HARMONY]


@pytest.mark.parametrize("form", WITHOUT_MARKER)
@pytest.mark.parametrize("calls", NOT_HARMONY)
@pytest.mark.parametrize("thinking", [None, THINK, Marks("[THINK]", "[/THINK]")])
def test_models_of_every_style_may_call_without_their_marker(
    form: str, calls: CallStyle, thinking: Marks | None
) -> None:
    expected = [("get_weather", '{"city": "Rome"}')]
    style = ReplyStyle(calls, thinking)
    for before in ("", "I look.\n"):
        text = before + WITHOUT_MARKER[form]
        content = before.strip()
        assert parts_of(parse_reply(text, style, TOOLS)) == (content, "", expected)
        assert parts_of(in_pieces(text, [1] * len(text), style)) == (content, "", expected)


def test_several_calls_without_markers_are_all_read() -> None:
    for text in (f"{CALL}\n{CALL}", f"```json\n{CALL}\n{CALL}\n```", f"[{CALL}, {CALL}]"):
        assert len(parse_reply(text, HERMES, TOOLS).tool_calls) == 2
    in_line = f"So {CALL}"
    assert parts_of(parse_reply(in_line, HERMES, TOOLS)) == (in_line, "", [])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"city', '{"c'),  # a key that no call has
        ('{"name": "Rome', '{"name": "R'),  # a name that no tool has
        ("```python", "```p"),
        ("[1, 2", "[1"),
        ("[link](a)", "[l"),
        ("{ }", "{ }"),
    ],
)
def test_text_is_held_back_only_while_it_can_become_a_call(text: str, shown: str) -> None:
    parser = ReplyParser(HERMES, TOOLS)
    assert parser.push(shown[:-1]) == []
    assert joined(parser.push(text[len(shown) - 1 :])).content == text
    assert shown.endswith(text[len(shown) - 1])


@pytest.mark.parametrize("calls", CallStyle)
def test_a_text_that_is_cut_off_in_a_call_leaks_nothing(calls: CallStyle) -> None:
    style = ReplyStyle(calls)
    text = write_calls([Called("get_weather", {"city": "Rome", "days": 3})] * 2, style)
    whole = parse_reply(text, style, TOOLS)
    for end in range(len(text)):
        parser = ReplyParser(style, TOOLS)
        cut = joined([*parser.push(text[:end]), *parser.finish(cut=True)])
        assert cut.content == "", text[:end]
        for call, full in zip(cut.tool_calls, whole.tool_calls, strict=False):
            assert full.arguments.startswith(call.arguments)
        complete = [
            call for call in cut.tool_calls if call.arguments == whole.tool_calls[0].arguments
        ]
        assert parser.called is bool(complete)


def test_a_prompt_may_have_opened_the_reasoning() -> None:
    for text in ("Hm.\n</think>\n\nYes.", "<think>\nHm.</think>Yes.", "\nHm.</think>Yes."):
        reply = parse_reply(text, HERMES, begins_in_reasoning=True)
        assert parts_of(reply) == ("Yes.", "Hm.", [])
    assert parts_of(parse_reply("</think>Yes.", HERMES, begins_in_reasoning=True)) == (
        "Yes.",
        "",
        [],
    )
    assert parts_of(parse_reply("cut", HERMES, begins_in_reasoning=True)) == ("", "cut", [])


def test_without_tools_nothing_is_a_call() -> None:
    text = write_calls([Called("now", {})], HERMES)
    assert parts_of(parse_reply(text, HERMES)) == (text, "", [])


def test_events_come_as_soon_as_they_are_certain() -> None:
    parser = ReplyParser(HERMES, TOOLS)
    assert parser.push("I look. ") == [Content("I look.")]
    assert parser.push("<tool") == []
    assert parser.push('_call>{"name": "now", "arguments": ') == []
    (begin, arguments) = parser.push('{"zone')
    assert isinstance(begin, ToolCallBegin)
    assert (begin.index, begin.name, len(begin.id)) == (0, "now", 9)
    assert arguments == ToolCallArguments(0, '{"zone')
    assert parser.push('": 1}') == [ToolCallArguments(0, '": 1}')]
    assert parser.called
    assert parser.push("}</tool_call>") == []
    assert parser.push("Done") == [Content("Done")]
    assert parser.push(" now ") == [Content(" now")]
    assert parser.finish() == [Content(" ")]
    assert parser.finish() == []


def test_ids_that_a_model_gives_are_kept() -> None:
    style = ReplyStyle(CallStyle.KIMI)
    calls = [Called("now", {}), Called("get_weather", {"days": 1})]
    reply = parse_reply(write_calls(calls, style), style, TOOLS)
    assert [call.id for call in reply.tool_calls] == ["functions.now:0", "functions.get_weather:1"]
    twice = write_calls(calls[:1], style) * 2
    first, second = parse_reply(twice, style, TOOLS).tool_calls
    assert first.id == "functions.now:0" != second.id


def test_brackets_for_ever_take_no_recursion() -> None:
    text = '<tool_call>{"name": "now", "arguments": {"a": ' + "[" * 20_000
    reply = parse_reply(text, HERMES, TOOLS)
    assert reply.tool_calls[0].arguments == '{"a": ' + "[" * 20_000
