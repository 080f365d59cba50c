"""What a reply says, piece by piece and as a whole.

Events come out of a parser in the order of the text; texts of the same kind that follow each
other belong together. `joined` makes one reply of them.
"""

import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegin:
    """The model calls a tool; the arguments follow. Calls are numbered from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of a call's arguments: JSON, as the model writes it."""

    index: int
    text: str


Event = Reasoning | Content | ToolCallBegin | ToolCallArguments


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; its arguments are the JSON of an object, unless the text was cut."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """All that a text says."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


def new_call_id() -> str:
    """A name for a call: nine letters and digits, since Mistral's templates take nothing else."""
    return "".join(secrets.choice(_LETTERS) for _ in range(9))


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events, with pieces of the same text that follow each other as one."""
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
    """Which text an event is a piece of."""
    return type(event), event.index if isinstance(event, ToolCallArguments) else 0


def joined(events: Iterable[Event]) -> Reply:
    """The reply that events make."""
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
