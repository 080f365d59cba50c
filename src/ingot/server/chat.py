"""Chat: a conversation and what is asked of it, in the form that all chat endpoints share.

Messages and tools come in as chat templates read them. A `PromptSet` for the engine goes out, and
a `ReplyReader` for what the model generates. It does not know the JSON of bodies and responses.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from types import MappingProxyType
from typing import Any

from ingot.api import LLM
from ingot.engine.options import RequestSpeculation
from ingot.reply import (
    Event,
    NamedTool,
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
    unenforced,
)
from ingot.sampling import SamplingParams, ThinkingBudget
from ingot.server.errors import ApiError
from ingot.server.generation import PromptSet
from ingot.server.options import RequestOptions
from ingot.server.prompt_tokens import kept_tokens
from ingot.server.request_adapters import AdapterScale

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chat:
    """What a chat request asks for."""

    messages: Sequence[Message]
    params: SamplingParams
    count: int = 1  # completions
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    include_stop: bool = False  # whether the text includes the stop sequence that ended it
    most_prompt_tokens: int | None = None  # of which the last are kept; None: all, -1: what fits
    # Whether the last message, from the assistant, is continued; None: if there is one.
    continues_last: bool | None = None
    thinking_tokens: int | None = None  # of reasoning before the answer; None: no limit
    separates_reasoning: bool = True  # or else it stays in the text, with its tags
    lora: Sequence[AdapterScale] | None = None
    priority: int = 0  # lower values are admitted first
    speculation: RequestSpeculation = "auto"
    template_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ReplyReader:
    """How to read what the model generates: reasoning, content, tool calls."""

    style: ReplyStyle
    tools: tuple[Tool, ...]
    begins_in_reasoning: bool
    is_past_reasoning: bool = False
    parallel_tool_calls: bool = True
    separates_reasoning: bool = True  # or else it stays in the text; gpt-oss's is always separate

    def parser(self) -> ReplyParser:
        """A parser for one completion."""
        if not self.separates_reasoning:
            return ReplyParser(replace(self.style, thinking=None), self.tools)
        return ReplyParser(self.style, self.tools, begins_in_reasoning=self.begins_in_reasoning)

    def allowed(self, events: Iterable[Event]) -> list[Event]:
        """The events, without tool calls after the first if only one is allowed."""
        return [
            event
            for event in events
            if self.parallel_tool_calls
            or not isinstance(event, (ToolCallBegin, ToolCallArguments))
            or event.index == 0
        ]


def for_counting(options: RequestOptions) -> RequestOptions:
    """The options of a request whose prompt is only counted: the limits of answers do not apply."""
    return replace(options, max_tokens=None)


class PreparedChat:
    """Makes a chat's prompt for a model; its `reader` is known after that."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._reader: ReplyReader | None = None

    @property
    def reader(self) -> ReplyReader:
        """How to read the completions."""
        assert self._reader is not None, "the prompt has been made"
        return self._reader

    def __call__(self, llm: LLM) -> PromptSet:
        """The prompt, with a grammar for its tool calls."""
        chat = self._chat
        prompt, self._reader = prepare(llm, chat)
        grammar = tool_grammar(
            self.reader.style,
            self.reader.tools,
            chat.tool_choice,
            parallel=chat.parallel_tool_calls,
            begins_in_reasoning=self.reader.begins_in_reasoning,
            is_past_reasoning=self.reader.is_past_reasoning,
            answer=chat.params.grammar,
        )
        params = replace(chat.params, grammar=grammar, thinking=self._budget(llm))
        most = kept_tokens(chat.most_prompt_tokens, llm.context, generated=params.max_tokens or 1)
        if most is not None:
            prompt = prompt[-most:]
        return PromptSet(
            [llm.engine.encode(prompt)],
            params,
            chat.count,
            include_stop=chat.include_stop,
            lora=chat.lora,
            priority=chat.priority,
            speculation=chat.speculation,
            warnings=self._warnings(),
        )

    def _warnings(self) -> tuple[str, ...]:
        chat = self._chat
        told = unenforced(self.reader.style, self.reader.tools, chat.tool_choice)
        return () if told is None or chat.params.grammar is not None else (told,)

    def _budget(self, llm: LLM) -> ThinkingBudget | None:
        if self._chat.thinking_tokens is None:
            return None
        return thinking_budget(
            self.reader.style,
            llm.tokenizer,
            self._chat.thinking_tokens,
            begins_in_reasoning=self.reader.begins_in_reasoning,
            may_call=bool(self.reader.tools),
        )


def named_tool(name: str | None, tools: Collection[str | None]) -> NamedTool:
    """The tool that `tool_choice` names, which must be one of the request's tools."""
    if name is None or name not in tools:
        raise ApiError(
            400, f"tool_choice names {name!r:.60}, which is not in tools", param="tool_choice"
        )
    return NamedTool(name)


def prepare(llm: LLM, chat: Chat) -> tuple[list[int], ReplyReader]:
    """The prompt's tokens, and how to read the completion."""
    talk = _conversation(llm, chat)
    options = {**_template_variables(talk), **chat.template_options}
    ids = llm.chat_prompt(talk.messages, tools=talk.tool_list, **options)
    style, end = llm.reply_style, llm.tokenizer.decode(ids[-_TAIL:])
    if talk.prefill:
        ids += llm.tokenizer.encode(talk.prefill, add_special=False)
    return ids, ReplyReader(
        style,
        talk.tools,
        begins_in_reasoning=not talk.prefill and style.is_opened_by(end),
        is_past_reasoning=bool(talk.prefill) or style.is_closed_by(end),
        parallel_tool_calls=chat.parallel_tool_calls,
        separates_reasoning=chat.separates_reasoning,
    )


def prompt_text(llm: LLM, chat: Chat) -> str:
    """The prompt as text."""
    talk = _conversation(llm, chat)
    messages, tools = for_template(talk.messages, talk.tool_list, llm.reply_style)
    options = {**_template_variables(talk), **chat.template_options}
    prompt = llm.chat_template.render(messages, tools=tools, **options)
    return prompt.text + talk.prefill


def _template_variables(talk: "_Conversation") -> dict[str, object]:
    """Variables that templates find at llama-server: the date, and the tools as JSON."""
    variables: dict[str, object] = {"date_string": f"{date.today():%d %b %Y}"}
    if talk.tools:
        variables["functions"] = json.dumps(talk.tool_list, ensure_ascii=False, indent=2)
    return variables


_TAIL = 32  # last tokens of a prompt, which can hold the marks around reasoning


@dataclass(frozen=True, slots=True)
class _Conversation:
    """Messages to render, the beginning of the answer that the client gave, tools to offer."""

    messages: list[Message]
    prefill: str
    tools: tuple[Tool, ...]

    @property
    def tool_list(self) -> list[dict[str, object]] | None:
        """The tools in OpenAI's form; None if there are none."""
        return [tool.as_mapping() for tool in self.tools] or None


def _conversation(llm: LLM, chat: Chat) -> _Conversation:
    tools = read_tools(chat.tools) if chat.tool_choice != "none" else ()
    if chat.tool_choice not in ("none", "auto") and not tools:
        raise ApiError(400, "tool_choice requires a tool, but tools is empty", param="tool_choice")
    messages = [_with_known_role(llm, message) for message in chat.messages]
    if not messages:
        raise ApiError(400, "messages is empty; send at least one", param="messages")
    return _Conversation(messages, _take_prefill(messages, chat.continues_last), tools)


def _take_prefill(messages: list[Message], is_wanted: bool | None) -> str:
    """Remove a last message from the assistant and return its content: the answer's beginning."""
    last = messages[-1]
    can_continue = last["role"] == "assistant" and not last.get("tool_calls")
    if is_wanted and (not can_continue or len(messages) == 1):
        raise ApiError(
            400,
            "continue_final_message needs a last message from the assistant after another one",
            param="continue_final_message",
        )
    if is_wanted is False or not can_continue or len(messages) == 1:
        return ""
    messages.pop()
    return str(last.get("content") or "")


def _with_known_role(llm: LLM, message: Message) -> Message:
    if message["role"] == "developer" and "developer" not in llm.chat_template.source:
        return {**message, "role": "system"}
    return message
