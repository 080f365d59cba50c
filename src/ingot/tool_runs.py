"""Tool runs: rounds of a chat in which the model calls Python functions, until it answers.

Messages and functions come in. The last answer and the whole conversation go out. The model is used
only through `LLM.chat` and `LLM.achat`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Unpack

from ingot.engine import Completion
from ingot.engine.request_fields import RequestFields
from ingot.errors import ConfigError, GrammarError, IncompleteTextError, ToolError
from ingot.reply import Reply, ToolCall, as_messages
from ingot.reply.function_tools import FunctionTool, function_tool, result_text
from ingot.sampling import SamplingParams
from ingot.sampling.params import ALIASES

if TYPE_CHECKING:
    from ingot.api import LLM

Message = Mapping[str, Any]
Functions = Sequence[Callable[..., Any]]
MAX_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The outcome of `LLM.run_tools`."""

    text: str  # the last answer, without reasoning
    completion: Completion  # the same answer as the model wrote it
    messages: tuple[Message, ...]  # the conversation: what was passed, calls, results, the answer

    def __str__(self) -> str:
        return self.text


def run_tools(
    llm: "LLM",
    messages: str | Sequence[Message],
    tools: Functions,
    params: SamplingParams | None,
    tool_choice: str,
    max_rounds: int,
    **fields: Unpack[RequestFields],
) -> ToolRun:
    """See `LLM.run_tools`."""
    rounds = _Rounds(llm, messages, tools)
    fields = _without_limit(params, fields)
    for number in range(_checked(max_rounds)):
        choice = tool_choice if number == 0 else "auto"
        done = llm.chat(rounds.messages, params, tools=tools, tool_choice=choice, **fields)
        calls = rounds.take(done)
        if not calls:
            return rounds.run(done)
        for call in calls:
            rounds.add(call, _called(rounds, call))
    raise rounds.still_calling(max_rounds)


async def arun_tools(
    llm: "LLM",
    messages: str | Sequence[Message],
    tools: Functions,
    params: SamplingParams | None,
    tool_choice: str,
    max_rounds: int,
    **fields: Unpack[RequestFields],
) -> ToolRun:
    """See `LLM.arun_tools`."""
    rounds = _Rounds(llm, messages, tools)
    fields = _without_limit(params, fields)
    for number in range(_checked(max_rounds)):
        choice = tool_choice if number == 0 else "auto"
        done = await llm.achat(rounds.messages, params, tools=tools, tool_choice=choice, **fields)
        calls = rounds.take(done)
        if not calls:
            return rounds.run(done)
        for call in calls:
            rounds.add(call, await _awaited(rounds, call))
    raise rounds.still_calling(max_rounds)


class _Rounds:
    """The conversation of a run."""

    def __init__(self, llm: "LLM", messages: str | Sequence[Message], tools: Functions) -> None:
        self.messages: list[Message] = list(as_messages(messages))
        self._llm = llm
        self._tools = tools
        described = [function_tool(function) for function in tools]
        self._by_name = {each.tool.name: each for each in described}
        self._reply: Reply | None = None

    def take(self, done: Completion) -> tuple[ToolCall, ...]:
        """Add an answer, and return the calls that it makes."""
        reply = self._llm.parse_reply(done, tools=self._tools)
        if reply.tool_calls and done.is_cut:
            raise IncompleteTextError(
                f"the model was cut off after {len(done.token_ids)} tokens (finish_reason "
                f"{done.finish_reason!r}) while it called a tool; pass a larger max_tokens"
            )
        self._reply = reply
        message: dict[str, Any] = {"role": "assistant", "content": reply.content}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.tool_calls:
            message["tool_calls"] = [_as_message(call) for call in reply.tool_calls]
        self.messages.append(message)
        return reply.tool_calls

    def function(self, call: ToolCall) -> FunctionTool:
        """The function that a call names."""
        return self._by_name[call.name]

    def add(self, call: ToolCall, result: str) -> None:
        """Add the result of a call."""
        self.messages.append(
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result}
        )

    def run(self, done: Completion) -> ToolRun:
        """The outcome, after an answer without calls."""
        assert self._reply is not None, "an answer was taken"
        return ToolRun(self._reply.content, done, tuple(self.messages))

    def still_calling(self, rounds: int) -> ToolError:
        """The error of a run that does not end."""
        names = ", ".join(call["function"]["name"] for call in self._last_calls())
        return ToolError(
            f"the model still calls tools after {rounds} rounds (last: {names}); "
            "pass a larger max_rounds, or check what the tools return"
        )

    def _last_calls(self) -> list[Mapping[str, Any]]:
        calls = [message["tool_calls"] for message in self.messages if message.get("tool_calls")]
        return list(calls[-1])


def _called(rounds: _Rounds, call: ToolCall) -> str:
    tool = rounds.function(call)
    try:
        arguments = tool.arguments(call.arguments)
    except (GrammarError, ValueError) as error:
        return _refused(error)
    result = tool.function(**arguments)
    if isawaitable(result):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise ToolError(f"the function {call.name!r} is async; use arun_tools")
    return result_text(result)


async def _awaited(rounds: _Rounds, call: ToolCall) -> str:
    import asyncio  # noqa: PLC0415 (imported already if somebody awaits)

    tool = rounds.function(call)
    try:
        arguments = tool.arguments(call.arguments)
    except (GrammarError, ValueError) as error:
        return _refused(error)
    result = await asyncio.to_thread(tool.function, **arguments)
    return result_text(await result if isawaitable(result) else result)


def _refused(error: Exception) -> str:
    """What the model reads if its arguments do not fit, so that it can correct them."""
    return json.dumps({"error": f"invalid arguments: {error}"}, ensure_ascii=False)


def _as_message(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _without_limit(params: SamplingParams | None, fields: RequestFields) -> RequestFields:
    """The fields of a run; unless they set a limit of tokens, texts end where the context does."""
    if params is not None or any(ALIASES.get(name, name) == "max_tokens" for name in fields):
        return fields
    return {"context_overflow": "stop", **fields, "max_tokens": None}


def _checked(max_rounds: int) -> int:
    if max_rounds < 1:
        raise ConfigError(f"max_rounds is {max_rounds}; it must be at least 1")
    return max_rounds
