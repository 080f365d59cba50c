"""OfferedTools: the tools of one chat, and which of them the model must call.

In: a style, tools, a tool choice and the end of the prompt. Out: the grammar of the text, and what
an answer without calls is parsed to.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ingot.errors import ToolError
from ingot.reply.parser import parse_reply
from ingot.reply.reply_grammar import NamedTool, ToolChoice, tool_grammar, unenforced
from ingot.reply.style import ReplyStyle
from ingot.reply.tools import Tool, ToolLike, read_tools
from ingot.sampling import Grammar
from ingot.tokenizer import Tokenizer

_log = logging.getLogger("ingot")

_END = 32  # last tokens of a prompt, which can hold the marks around reasoning


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Tools, and how the model may use them."""

    style: ReplyStyle
    tools: tuple[Tool, ...]
    choice: ToolChoice
    prompt_end: str  # as far as it can open or close the reasoning

    @classmethod
    def read(
        cls,
        style: ReplyStyle,
        tools: Sequence[ToolLike] | None,
        choice: str,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
    ) -> Self:
        """The tools as a caller gives them, checked."""
        return cls(style, read_tools(tools), _choice(choice), tokenizer.decode(prompt[-_END:]))

    def grammar(self, answer: Grammar | None) -> Grammar | None:
        """The grammar of the text; `answer` is that of an answer without calls."""
        told = unenforced(self.style, self.tools, self.choice)
        if told is not None and answer is None:
            _log.warning("%s", told)
        return tool_grammar(
            self.style,
            self.tools,
            self.choice,
            begins_in_reasoning=self.style.is_opened_by(self.prompt_end),
            is_past_reasoning=self.style.is_closed_by(self.prompt_end),
            answer=answer,
        )

    def parse(self, text: str, parse_answer: Callable[[str], Any]) -> Any:
        """What the answer of a text is parsed to; None if it calls tools."""
        begun = self.style.is_opened_by(self.prompt_end)
        reply = parse_reply(text, self.style, self.tools, begins_in_reasoning=begun)
        return None if reply.tool_calls else parse_answer(reply.content)


def _choice(given: str) -> ToolChoice:
    """A tool choice: "auto", "required", "none", or the name of a tool."""
    match given:
        case "auto" | "required" | "none":
            return given
        case str():
            return NamedTool(given)
    raise ToolError(
        f'tool_choice is {given!r:.80}; it must be "auto", "required", "none" or the name of a tool'
    )
