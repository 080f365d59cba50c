"""Replies: the reasoning, the answer and the tool calls in the text of a model."""

from ingot.reply.events import (
    Content,
    Event,
    Reasoning,
    Reply,
    ToolCall,
    ToolCallArguments,
    ToolCallBegin,
)
from ingot.reply.offered_tools import OfferedTools
from ingot.reply.parser import ReplyParser, parse_reply
from ingot.reply.reasoning_budget import thinking_budget
from ingot.reply.reply_grammar import NamedTool, ToolChoice, tool_grammar, unenforced
from ingot.reply.style import CallStyle, Marks, ReplyStyle, style_of
from ingot.reply.template_messages import as_messages, for_template
from ingot.reply.tools import Tool, ToolLike, read_tools

__all__ = [
    "CallStyle",
    "Content",
    "Event",
    "Marks",
    "NamedTool",
    "OfferedTools",
    "Reasoning",
    "Reply",
    "ReplyParser",
    "ReplyStyle",
    "Tool",
    "ToolCall",
    "ToolCallArguments",
    "ToolCallBegin",
    "ToolChoice",
    "ToolLike",
    "as_messages",
    "for_template",
    "parse_reply",
    "read_tools",
    "style_of",
    "thinking_budget",
    "tool_grammar",
    "unenforced",
]
