"""A conversation and what is to be made of it, in the form that all chat endpoints share.

Comes in: messages and tools as chat templates read them. Goes out: the engine's requests, and
a way to read what their texts say. It does not know the shapes of bodies and answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ingot.api import LLM
from ingot.reply import (
    Event,
    ReplyParser,
    ReplyStyle,
    Tool,
    ToolCallArguments,
    ToolCallBegin,
    ToolChoice,
    for_template,
    read_tools,
    thinking_budget,
    tool_grammar,
)
from ingot.sampling import SamplingParams, ThinkingBudget
from ingot.server.errors import ApiError
from ingot.server.several import Texts

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chat:
    """What was asked for."""

    messages: Sequence[Message]
    params: SamplingParams
    count: int = 1  # answers
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    thinking_tokens: int | None = None  # before the answer has to begin; None: no limit
    template_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Reading:
    """How the answers of a chat are to be read."""

    style: ReplyStyle
    tools: tuple[Tool, ...]
    begins_in_reasoning: bool
    parallel_tool_calls: bool = True

    def parser(self) -> ReplyParser:
        """A parser for one answer."""
        return ReplyParser(self.style, self.tools, begins_in_reasoning=self.begins_in_reasoning)

    def wanted(self, events: Iterable[Event]) -> list[Event]:
        """Events to be told: without calls beyond the first, if one is all that may be."""
        return [
            event
            for event in events
            if self.parallel_tool_calls
            or not isinstance(event, (ToolCallBegin, ToolCallArguments))
            or event.index == 0
        ]


class Submission:
    """The texts that a chat asks for; how its answers are read is known afterwards."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._reading: Reading | None = None

    @property
    def reading(self) -> Reading:
        """How to read the answers."""
        assert self._reading is not None, "it was called"
        return self._reading

    def __call__(self, llm: LLM) -> Texts:
        """The answers to ask a model for."""
        chat = self._chat
        prompt, self._reading = prepare(llm, chat)
        params = chat.params
        grammar = tool_grammar(
            self.reading.style,
            self.reading.tools,
            chat.tool_choice,
            parallel=chat.parallel_tool_calls,
            begins_in_reasoning=self.reading.begins_in_reasoning,
            answer=params.grammar,
        )
        params = replace(params, grammar=grammar, thinking=self._budget(llm))
        return Texts([llm.engine.encode(prompt)], params, chat.count)

    def _budget(self, llm: LLM) -> ThinkingBudget | None:
        if self._chat.thinking_tokens is None:
            return None
        return thinking_budget(
            self.reading.style,
            llm.tokenizer,
            self._chat.thinking_tokens,
            begins_in_reasoning=self.reading.begins_in_reasoning,
            may_call=bool(self.reading.tools),
        )


@dataclass(frozen=True, slots=True)
class _Conversation:
    """A chat's messages without the answer that the client has begun, and the tools to offer."""

    messages: list[Message]
    begun: str
    tools: tuple[Tool, ...]

    @property
    def tool_list(self) -> list[dict[str, Any]] | None:
        """The tools in OpenAI's form; None if there are none."""
        return [tool.as_mapping() for tool in self.tools] or None


def prepare(llm: LLM, chat: Chat) -> tuple[list[int], Reading]:
    """The prompt's tokens, and how to read the answer."""
    talk = _conversation(llm, chat)
    ids = llm.chat_prompt(talk.messages, tools=talk.tool_list, **chat.template_options)
    opened = llm.reply_style.is_opened_by(llm.tokenizer.decode(ids[-_TAIL:]))
    if talk.begun:
        ids += llm.tokenizer.encode(talk.begun, add_special=False)
        opened = False
    return ids, Reading(llm.reply_style, talk.tools, opened, chat.parallel_tool_calls)


def prompt_text(llm: LLM, chat: Chat) -> str:
    """The prompt as text."""
    talk = _conversation(llm, chat)
    messages, tools = for_template(talk.messages, talk.tool_list, llm.reply_style)
    prompt = llm.chat_template.render(messages, tools=tools, **chat.template_options)
    return prompt.text + talk.begun


def _conversation(llm: LLM, chat: Chat) -> _Conversation:
    tools = read_tools(chat.tools) if chat.tool_choice != "none" else ()
    if chat.tool_choice not in ("none", "auto") and not tools:
        raise ApiError(400, "tool_choice asks for a tool, and there are none", param="tool_choice")
    messages = [_for_template(llm, message) for message in chat.messages]
    if not messages:
        raise ApiError(400, "messages is empty; there must be at least one", param="messages")
    begun = _prefill(messages)
    return _Conversation(messages, begun, tools)


_TAIL = 8  # tokens of a prompt that can hold the mark that opens reasoning


def _prefill(messages: list[Message]) -> str:
    """Take off what an answer has to begin with: a last message that is the model's own."""
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls") or len(messages) == 1:
        return ""
    messages.pop()
    return str(last.get("content") or "")


def _for_template(llm: LLM, message: Message) -> Message:
    if message["role"] == "developer" and "developer" not in llm.chat_template.source:
        return {**message, "role": "system"}
    return message
