"""ReplyStyle: how a model writes reasoning and tool calls, found from its chat template.

In: the source of a template and the control tokens of the vocabulary. Out: a `ReplyStyle`.
Templates show the format that models were trained on, because they write the earlier calls of a
conversation in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from ingot.tokenizer.special_tokens import REASONING_TAGS

# llama-server's names: "none" leaves reasoning in the text, the other two separate it.
ReasoningFormat = Literal["auto", "deepseek", "none"]


class CallStyle(StrEnum):
    """The format of tool calls; in the examples, `{...}` are the arguments."""

    HERMES = "hermes"  # <tool_call>{"name": "f", "arguments": {...}}</tool_call>
    LLAMA3 = "llama3"  # {"name": "f", "parameters": {...}}, maybe after <|python_tag|>
    MISTRAL = "mistral"  # [TOOL_CALLS][{"name": "f", "arguments": {...}}]
    MISTRAL_ARGS = "mistral_args"  # [TOOL_CALLS]f[ARGS]{...}
    GRANITE = "granite"  # <|tool_call|>[{"name": "f", "arguments": {...}}], also Phi
    DEEPSEEK = "deepseek"  # V3, R1: the name on a line, the arguments in a fence of JSON
    DEEPSEEK_V31 = "deepseek_v31"  # the name, a separator, {...}
    QWEN_XML = "qwen_xml"  # Qwen3-Coder: <function=f>, and each argument in <parameter=name>
    GLM = "glm"  # <tool_call>f, and each argument in <arg_key> and <arg_value>
    MINIMAX = "minimax"  # <invoke name="f">, and each argument in <parameter name="...">
    KIMI = "kimi"  # functions.f:0, a separator, {...}
    HARMONY = "harmony"  # gpt-oss: a message to=functions.f; reasoning is a channel
    JSON = "json"  # {"name": "f", "arguments": {...}}: models without a format for calls


@dataclass(frozen=True, slots=True)
class Marks:
    """The tags around reasoning."""

    open: str
    close: str


_THINKING = tuple(Marks(*tags) for tags in REASONING_TAGS)

HERMES_OPEN, HERMES_CLOSE = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
MISTRAL_CALLS, MISTRAL_ARGS = "[TOOL_CALLS]", "[ARGS]"
GRANITE_OPEN, GRANITE_CLOSE = "<|tool_call|>", "<|/tool_call|>"
CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_SEP, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FUNCTION_OPEN, FUNCTION_CLOSE = "<function=", "</function>"
PARAMETER_OPEN, PARAMETER_CLOSE = "<parameter=", "</parameter>"
ARG_KEY_OPEN, ARG_KEY_CLOSE = "<arg_key>", "</arg_key>"
ARG_VALUE_OPEN, ARG_VALUE_CLOSE = "<arg_value>", "</arg_value>"
MINIMAX_OPEN, MINIMAX_CLOSE = "<minimax:tool_call>", "</minimax:tool_call>"
SECTION_BEGIN, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
KIMI_BEGIN, KIMI_END = "<|tool_call_begin|>", "<|tool_call_end|>"
KIMI_ARGUMENTS = "<|tool_call_argument_begin|>"
CHANNEL, MESSAGE, START = "<|channel|>", "<|message|>", "<|start|>"
END, RETURN, CALL, CONSTRAIN = "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"

ALL_MARKERS = (
    *(mark for marks in _THINKING for mark in (marks.open, marks.close)),
    HERMES_OPEN, HERMES_CLOSE, PYTHON_TAG, MISTRAL_CALLS, MISTRAL_ARGS, GRANITE_OPEN, GRANITE_CLOSE,
    CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_SEP, CALL_END,
    ARG_KEY_OPEN, ARG_KEY_CLOSE, ARG_VALUE_OPEN, ARG_VALUE_CLOSE,
    MINIMAX_OPEN, MINIMAX_CLOSE, SECTION_BEGIN, SECTION_END, KIMI_BEGIN, KIMI_END, KIMI_ARGUMENTS,
    CHANNEL, MESSAGE, START, END, RETURN, CALL, CONSTRAIN,
)  # fmt: skip

# The first marker in the template decides; then the first one that is a control token.
_BY_MARKER = (
    (CALL_BEGIN, CallStyle.DEEPSEEK),
    (MISTRAL_CALLS, CallStyle.MISTRAL),
    (GRANITE_OPEN, CallStyle.GRANITE),
    (SECTION_BEGIN, CallStyle.KIMI),
    (MINIMAX_OPEN, CallStyle.MINIMAX),
    (HERMES_OPEN, CallStyle.HERMES),
    (PYTHON_TAG, CallStyle.LLAMA3),
)


@dataclass(frozen=True, slots=True)
class ReplyStyle:
    """The format of reasoning and tool calls of one model."""

    calls: CallStyle = CallStyle.JSON
    thinking: Marks | None = None  # also None if reasoning has a channel (HARMONY)
    template_knows_tools: bool = False  # else a message has to list them
    # Markers that are control tokens, by their text.
    controls: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def is_opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends with the opening tag, so that a text begins in the reasoning."""
        return self.thinking is not None and prompt.rstrip().endswith(self.thinking.open)

    def is_closed_by(self, prompt: str) -> bool:
        """Whether a prompt ends with the closing tag, so that no reasoning is wanted."""
        return self.thinking is not None and prompt.rstrip().endswith(self.thinking.close)


def style_of(template: str, controls: Mapping[str, int] = MappingProxyType({})) -> ReplyStyle:
    """The style of a model, from the source of its template and its control tokens."""
    thinking = (marks for marks in _THINKING if marks.close in template or marks.open in template)
    knows_tools = "tools" in template
    return ReplyStyle(
        calls=_call_style(template, controls, knows_tools),
        thinking=next(thinking, None),
        template_knows_tools=knows_tools,
        controls=MappingProxyType(
            {mark: controls[mark] for mark in ALL_MARKERS if mark in controls}
        ),
    )


def _call_style(template: str, controls: Mapping[str, int], knows_tools: bool) -> CallStyle:
    if CHANNEL in template and MESSAGE in template:
        return CallStyle.HARMONY
    for texts in (template, controls if knows_tools else ()):
        for mark, style in _BY_MARKER:
            if mark in texts:
                return _newer(style, template)
    return CallStyle.JSON


def _newer(style: CallStyle, template: str) -> CallStyle:
    """The newer format if a style shares its marker with an older one."""
    if style is CallStyle.HERMES and FUNCTION_OPEN in template and PARAMETER_OPEN in template:
        return CallStyle.QWEN_XML
    if style is CallStyle.HERMES and ARG_KEY_OPEN in template:
        return CallStyle.GLM
    if style is CallStyle.MISTRAL and MISTRAL_ARGS in template:
        return CallStyle.MISTRAL_ARGS
    if style is CallStyle.DEEPSEEK and "```json" not in template:
        return CallStyle.DEEPSEEK_V31
    return style
