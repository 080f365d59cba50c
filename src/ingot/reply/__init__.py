"""What a model's text says: its reasoning, its answer, the tools it calls."""

from ingot.reply.events import (
    Content,
    Event,
    Reasoning,
    Reply,
    ToolCall,
    ToolCallArguments,
    ToolCallBegin,
)
from ingot.reply.grammar import NamedTool, ToolChoice, tool_grammar
from ingot.reply.parser import ReplyParser, parse_reply
from ingot.reply.style import CallStyle, Marks, ReplyStyle, style_of
from ingot.reply.telling import for_template
from ingot.reply.thinking import thinking_budget
from ingot.reply.tools import Tool, read_tools

__all__ = [
    "CallStyle",
    "Content",
    "Event",
    "Marks",
    "NamedTool",
    "Reasoning",
    "Reply",
    "ReplyParser",
    "ReplyStyle",
    "Tool",
    "ToolCall",
    "ToolCallArguments",
    "ToolCallBegin",
    "ToolChoice",
    "for_template",
    "parse_reply",
    "read_tools",
    "style_of",
    "thinking_budget",
    "tool_grammar",
]
