"""Replies, piece by piece (events) and as a whole (`Reply`).

A parser gives events in the order of the text. Neighbouring pieces of the same kind belong
together; `joined` makes one reply of all events.
"""

import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegin:
    """The beginning of a tool call; its arguments follow. Calls are numbered from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of the arguments of a tool call: JSON, as the model writes it."""

    index: int
    text: str


Event = Reasoning | Content | ToolCallBegin | ToolCallArguments


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call. Its arguments are a JSON object, unless the text was cut off."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of a whole text."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


def new_call_id() -> str:
    """A new id: nine letters and digits, because Mistral's templates accept nothing else."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events, with neighbouring pieces of the same text joined."""
    made: list[Event] = []
    for _, group in groupby(events, _text_of):
        first, *rest = group
        if isinstance(first, ToolCallBegin):
            made += [first, *rest]
        else:
            more = [event.text for event in rest if not isinstance(event, ToolCallBegin)]
            made.append(replace(first, text="".join([first.text, *more])))
    return made


def _text_of(event: Event) -> tuple[type[Event], int]:
    """A key of the text that an event is a piece of."""
    return type(event), event.index if isinstance(event, ToolCallArguments) else 0


def joined(events: Iterable[Event]) -> Reply:
    """The reply that the events make up."""
    content: list[str] = []
    reasoning: list[str] = []
    begun: list[ToolCallBegin] = []
    arguments: list[list[str]] = []
    for event in events:
        match event:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCallBegin():
                begun.append(event)
                arguments.append([])
            case ToolCallArguments(index, text):
                arguments[index].append(text)
    calls = (
        ToolCall(call.id, call.name, "".join(texts))
        for call, texts in zip(begun, arguments, strict=True)
    )
    return Reply("".join(content), "".join(reasoning), tuple(calls))
