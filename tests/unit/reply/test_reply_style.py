"""Styles are found in the chat templates of families, and prompts open reasoning."""

import pytest

from data.chat_templates.cases import families
from ingot.errors import ToolError
from ingot.reply import CallStyle, Marks, ReplyStyle, Tool, for_template, read_tools, style_of

THINK = Marks("<think>", "</think>")
SOURCES = {family.name: family.source for family in families()}
MESSAGES = [
    {"role": "user", "content": "What time is it?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"function": {"name": "now", "arguments": '{"zone": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "abc", "content": "noon"},
]


@pytest.mark.parametrize(
    ("family", "calls", "thinking", "knows_tools"),
    [
        ("qwen2_5", CallStyle.HERMES, None, True),
        ("qwen3", CallStyle.HERMES, THINK, True),
        ("qwen3_coder", CallStyle.QWEN_XML, None, True),
        ("glm4_5", CallStyle.GLM, THINK, True),
        ("kimi_k2", CallStyle.KIMI, THINK, True),
        ("minimax_m2", CallStyle.MINIMAX, THINK, True),
        ("llama3_1", CallStyle.LLAMA3, None, True),
        ("mistral_v3", CallStyle.MISTRAL, None, True),
        ("granite", CallStyle.GRANITE, None, True),
        ("deepseek_v3", CallStyle.DEEPSEEK, None, False),
        ("deepseek_r1", CallStyle.JSON, THINK, False),
        ("gpt_oss", CallStyle.HARMONY, None, True),
        ("smollm2", CallStyle.JSON, None, False),
        ("gemma3", CallStyle.JSON, None, False),
        ("command_r", CallStyle.JSON, None, True),
    ],
)
def test_styles_of_families(
    family: str, calls: CallStyle, thinking: Marks | None, knows_tools: bool
) -> None:
    style = style_of(SOURCES[family])
    assert (style.calls, style.thinking) == (calls, thinking)
    assert style.template_knows_tools is knows_tools


def test_newer_forms_and_tokens() -> None:
    assert style_of("{{ tools }}[TOOL_CALLS]f[ARGS]").calls is CallStyle.MISTRAL_ARGS
    newer = "{{ tools }}<｜tool▁call▁begin｜>f<｜tool▁sep｜>"
    assert style_of(newer).calls is CallStyle.DEEPSEEK_V31
    assert style_of("{{ tools }}<tool_call>f<arg_key>").calls is CallStyle.GLM
    assert style_of("{{ tools }}<tool_call><function=f>{}").calls is CallStyle.HERMES
    kimi = "<|tool_calls_section_begin|>"
    assert style_of(f"{{{{ tools }}}}{kimi}").calls is CallStyle.KIMI
    assert style_of("{{ tools }}", {kimi: 7}).calls is CallStyle.KIMI
    assert style_of("{{ tools }}[THINK]").thinking == Marks("[THINK]", "[/THINK]")
    phi = style_of(SOURCES["phi4_mini"], {"<|tool_call|>": 7, "<|end|>": 8, "<|user|>": 9})
    assert phi.calls is CallStyle.GRANITE
    assert phi.controls == {"<|tool_call|>": 7, "<|end|>": 8}
    assert style_of("no word of them", {"<|tool_call|>": 7}).calls is CallStyle.JSON


def test_prompts_that_open_reasoning() -> None:
    style = ReplyStyle(thinking=THINK)
    assert style.is_opened_by("<|im_start|>assistant\n<think>\n")
    assert not style.is_opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not ReplyStyle().is_opened_by("<think>")
    assert style.is_closed_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not style.is_closed_by("<|im_start|>assistant\n<think>\n")
    assert not ReplyStyle().is_closed_by("</think>")


def test_tools_move_into_a_message_if_the_template_has_no_place_for_them() -> None:
    tools = [{"name": "now", "description": "The time."}]
    plain, left = for_template(MESSAGES, tools, ReplyStyle())
    assert left is None
    assert [message["role"] for message in plain] == ["system", "user", "assistant", "user"]
    assert '"name": "now", "description": "The time."' in plain[0]["content"]
    assert plain[2]["content"] == 'I look.\n{"name": "now", "arguments": {"zone": 1}}'
    assert "noon" in plain[3]["content"]
    system = {"role": "system", "content": "Be kind."}
    plain, _ = for_template([system], tools, ReplyStyle())
    assert plain[0]["content"].startswith("Be kind.\n\n")
    assert for_template(MESSAGES[:1], (), ReplyStyle()) == (MESSAGES[:1], None)
    knowing = ReplyStyle(CallStyle.HERMES, template_knows_tools=True)
    assert for_template(MESSAGES, tools, knowing) == (MESSAGES, tools)
    calling = ReplyStyle(CallStyle.DEEPSEEK)
    plain, left = for_template(MESSAGES, tools, calling)
    assert plain[1:] == MESSAGES
    assert left is None


def test_tools() -> None:
    inner = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    assert read_tools([{"type": "function", "function": inner}]) == read_tools([inner])
    assert read_tools(None) == ()
    assert Tool("f").as_mapping()["function"]["parameters"] == {"type": "object", "properties": {}}
    for wrong in (
        [{}], [{"name": ""}], [{"name": 1}], [inner, inner], [{**inner, "parameters": 1}],
        [{**inner, "strict": "yes"}], [{**inner, "description": 1}], [{"function": None}],
    ):  # fmt: skip
        with pytest.raises(ToolError):
            read_tools(wrong)
