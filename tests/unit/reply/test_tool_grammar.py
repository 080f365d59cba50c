"""Under a tool grammar every text is valid calls, whatever the model wants to write."""

import json
from pathlib import Path

import jsonschema
import pytest

from ingot import LLM
from ingot.errors import ToolError
from ingot.reply import (
    CallStyle,
    Marks,
    NamedTool,
    Reply,
    ReplyStyle,
    Tool,
    ToolChoice,
    parse_reply,
    read_tools,
    tool_grammar,
)
from ingot.reply.style import ALL_MARKERS
from ingot.sampling import ChainBuilder, Grammar
from ingot.tokenizer import Tokenizer, TokenType
from unit.reply.written_calls import THINK, TOOLS, WEATHER
from unit.sampling.grammar_runs import accepts, write
from unit.tokenizer.small_vocabularies import byte_letters, write_vocabulary

SINGLE = (CallStyle.HARMONY, CallStyle.LLAMA3)
# Marks that models have as control tokens; the others are text.
CONTROLS = [mark for mark in ALL_MARKERS if "｜" in mark or "|" in mark or "[" in mark]


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a vocabulary of the 256 bytes, an end, and marks."""
    path = tmp_path_factory.mktemp("reply") / "marked.gguf"
    controls = [(mark, TokenType.CONTROL) for mark in ("<eos>", *CONTROLS)]
    settings = {"merges": ["a b"], "pre": "gpt-2", "eos_token_id": 256}
    return Tokenizer.from_gguf(
        write_vocabulary(path, "gpt2", [*byte_letters(), *controls], settings)
    )


@pytest.fixture(scope="module")
def builder(marked: Tokenizer) -> ChainBuilder:
    return ChainBuilder(marked)


def check_calls(reply: Reply, tools: tuple[Tool, ...] = TOOLS, *, free: bool = False) -> None:
    """Every call is one of the tools with arguments by its schema, and there is no other text.

    `free` arguments are any object.
    """
    assert reply.content == ""
    assert reply.tool_calls
    by_name = {tool.name: tool for tool in tools}
    for call in reply.tool_calls:
        arguments = json.loads(call.arguments)
        assert isinstance(arguments, dict)
        if not free:
            jsonschema.validate(arguments, by_name[call.name].parameters)


def needed(style: ReplyStyle, choice: ToolChoice = "required", *, parallel: bool = True) -> Grammar:
    grammar = tool_grammar(style, TOOLS, choice, parallel=parallel)
    assert grammar is not None
    return grammar


@pytest.mark.parametrize(
    ("calls", "thinking"), [*((calls, None) for calls in CallStyle), (CallStyle.HERMES, THINK)]
)
def test_random_texts_are_calls(
    calls: CallStyle, thinking: Marks | None, marked: Tokenizer, builder: ChainBuilder
) -> None:
    style = ReplyStyle(calls, thinking, controls=marked.control_tokens())
    complete = 0
    for seed in range(6):
        text = write(builder, marked, needed(style), seed, max_tokens=2000)
        if text is not None:
            complete += 1
            check_calls(parse_reply(text, style, TOOLS))
    assert complete >= 2


@pytest.mark.parametrize("calls", CallStyle)
def test_one_named_tool(calls: CallStyle, marked: Tokenizer, builder: ChainBuilder) -> None:
    style = ReplyStyle(calls, controls=marked.control_tokens())
    text = write(builder, marked, needed(style, NamedTool("now")), seed=1)
    assert text is not None
    reply = parse_reply(text, style, TOOLS)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("now", "{}")]


OPEN = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("arguments", "is_allowed"),
    [
        ('{"city": "Rome", "days": 3}', True),
        ('{"city": "Rome", "land": "Italy"}', False),
        ('{"days": 9007199254740991}', True),
        ('{"days": 9007199254740992}', False),
        ('{"days": 11111111111111111111}', False),
        (f'{{"city": "{"a" * 16_385}"}}', False),
    ],
)
def test_arguments_have_no_undeclared_keys_and_end(
    arguments: str, is_allowed: bool, marked: Tokenizer, builder: ChainBuilder
) -> None:
    tools = read_tools([{"name": "f", "parameters": OPEN, "strict": True}])
    text = f'{{"name": "f", "arguments": {arguments}}}'
    grammar = tool_grammar(ReplyStyle(CallStyle.JSON), tools, "required", parallel=False)
    assert grammar is not None
    assert accepts(builder, marked, grammar, text) is is_allowed


def test_how_many_calls(marked: Tokenizer, builder: ChainBuilder) -> None:
    tools = read_tools([{"name": "now"}])
    for calls in CallStyle:
        style = ReplyStyle(calls, controls=marked.control_tokens())
        counts = {}
        for parallel in (False, True):
            grammar = tool_grammar(style, tools, "required", parallel=parallel)
            assert grammar is not None
            texts = (
                write(builder, marked, grammar, s, end_bias=-3, max_tokens=900) for s in range(6)
            )
            replies = [parse_reply(text, style, tools) for text in texts if text is not None]
            counts[parallel] = {len(reply.tool_calls) for reply in replies}
        assert counts[False] == {1}
        assert (max(counts[True]) > 1) is (calls not in SINGLE)


def test_reasoning_that_the_prompt_has_opened(marked: Tokenizer, builder: ChainBuilder) -> None:
    style = ReplyStyle(CallStyle.HERMES, THINK, controls=marked.control_tokens())
    grammar = tool_grammar(style, TOOLS, NamedTool("now"), begins_in_reasoning=True)
    assert grammar is not None
    state = builder.grammar_state(grammar)
    for byte in b'Let me think.</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}':
        token = next(t for t in range(256) if marked.token_bytes(t) == bytes([byte]))
        assert state.mask()[token >> 5] >> (token & 31) & 1, chr(byte)
        state.accept(token)


def test_where_calling_is_optional(marked: Tokenizer, builder: ChainBuilder) -> None:
    strict = read_tools([{"name": "get_weather", "parameters": WEATHER, "strict": True}])
    for calls in CallStyle:
        style = ReplyStyle(calls, controls=marked.control_tokens())
        assert tool_grammar(style, TOOLS, "auto") is None
        assert tool_grammar(style, strict, "none") is None
        grammar = tool_grammar(style, (*TOOLS[1:], *strict), "auto")
        has_mark = calls not in (CallStyle.JSON, CallStyle.LLAMA3, CallStyle.HARMONY)
        assert (grammar is not None) is has_mark
        if grammar is not None:
            builder.grammar_state(grammar).prepare()  # it compiles


@pytest.mark.parametrize("thinking", [None, THINK])
@pytest.mark.parametrize("calls", [CallStyle.HERMES, CallStyle.HARMONY, CallStyle.JSON])
def test_an_answer_must_have_a_form(
    calls: CallStyle, thinking: Marks | None, marked: Tokenizer, builder: ChainBuilder
) -> None:
    style = ReplyStyle(calls, thinking, controls=marked.control_tokens())
    schema = {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}
    form = Grammar.json_schema(schema)
    seen = set()
    for tools, begun in (((), False), (TOOLS[:2], False), (TOOLS[:2], thinking is not None)):
        grammar = tool_grammar(style, tools, "auto", begins_in_reasoning=begun, answer=form)
        assert grammar is not None
        for seed in range(12, 17):
            text = write(builder, marked, grammar, seed, max_tokens=2000)
            if text is None:
                continue
            reply = parse_reply(text, style, tools, begins_in_reasoning=begun)
            if reply.tool_calls:
                check_calls(reply, tools, free=True)
            else:
                jsonschema.validate(json.loads(reply.content), schema)
            seen.add((bool(tools), bool(reply.tool_calls)))
    assert seen == {(False, False), (True, False), (True, True)}
    called = tool_grammar(style, TOOLS[:2], "required", answer=form)
    assert called == tool_grammar(style, TOOLS[:2], "required")


def test_choices_that_cannot_be() -> None:
    with pytest.raises(ToolError, match="none"):
        tool_grammar(ReplyStyle(), TOOLS, NamedTool("none"))
    with pytest.raises(ToolError, match="pass tools"):
        tool_grammar(ReplyStyle(), (), "required")


def test_a_real_model_calls_what_it_must(smollm2_path: Path) -> None:
    tools = [tool.as_mapping() for tool in TOOLS[:2]]
    question = {"role": "user", "content": "What is the weather in Paris this week?"}
    with LLM(smollm2_path) as llm:
        grammar = tool_grammar(llm.reply_style, TOOLS[:2], "required", parallel=False)
        prompt = llm.chat_prompt([question], tools=tools)
        hot = {"grammar": grammar, "temperature": 1.5, "top_p": 1.0, "min_p": 0.0, "top_k": 0}
        for request in [llm.stream(prompt, seed=seed, **hot) for seed in range(8)]:
            done = request.result()
            assert done.finish_reason == "stop"
            check_calls(llm.parse_reply(done.text, tools=tools))
