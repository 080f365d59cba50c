"""The items of an answer at `/v1/responses`, and the events that tell of them as they grow.

Comes in: what a reply says, event by event. Goes out: items, and the stream's events without
their numbers. An item begins where something of another kind is said.
"""

import uuid
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel

from ingot.reply import Content, Event, Reasoning, ToolCallArguments, ToolCallBegin

Status = Literal["in_progress", "completed", "incomplete"]
StreamEvent = dict[str, Any]


class OutputText(BaseModel):
    """The words of a message."""

    type: Literal["output_text"] = "output_text"
    text: str = ""
    annotations: list[str] = []
    logprobs: list[str] = []


class ReasoningText(BaseModel):
    """What the model thought."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str = ""


class MessageItem(BaseModel):
    """A message of the model."""

    type: Literal["message"] = "message"
    id: str
    status: Status = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = []


class ReasoningItem(BaseModel):
    """Its reasoning."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    status: Status = "in_progress"
    summary: list[str] = []
    content: list[ReasoningText] = []


class FunctionCallItem(BaseModel):
    """A call of a function."""

    type: Literal["function_call"] = "function_call"
    id: str
    status: Status = "in_progress"
    call_id: str
    name: str
    arguments: str = ""


OutputItem = MessageItem | ReasoningItem | FunctionCallItem


class Output:
    """The items of one answer, the last of which may still grow."""

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self._pieces: list[str] = []  # of the item that is open
        self._open: OutputItem | None = None

    def push(self, said: Event) -> Iterator[StreamEvent]:
        """Add something said: the events that tell it."""
        match said:
            case Content(text):
                if not isinstance(self._open, MessageItem):
                    yield from self._begin(MessageItem(id=_new_id("msg")))
                yield self._delta("response.output_text.delta", text, content_index=0, logprobs=[])
            case Reasoning(text):
                if not isinstance(self._open, ReasoningItem):
                    yield from self._begin(ReasoningItem(id=_new_id("rs")))
                yield self._delta("response.reasoning_text.delta", text, content_index=0)
            case ToolCallBegin(_, id, name):
                item = FunctionCallItem(id=_new_id("fc"), call_id=f"call_{id}", name=name)
                yield from self._begin(item)
            case ToolCallArguments(_, text):
                yield self._delta("response.function_call_arguments.delta", text)

    def close(self, status: Status = "completed") -> Iterator[StreamEvent]:
        """End the item that is open, if one is."""
        item, text = self._open, "".join(self._pieces)
        self._open = None
        self._pieces.clear()
        match item:
            case MessageItem():
                item.content = [OutputText(text=text)]
                place = self._place(item, content_index=0)
                yield {"type": "response.output_text.done", **place, "text": text, "logprobs": []}
                yield self._part("done", item, item.content[0])
            case ReasoningItem():
                item.content = [ReasoningText(text=text)]
                place = self._place(item, content_index=0)
                yield {"type": "response.reasoning_text.done", **place, "text": text}
                yield self._part("done", item, item.content[0])
            case FunctionCallItem():
                item.arguments = text
                yield {
                    "type": "response.function_call_arguments.done",
                    **self._place(item),
                    "name": item.name,
                    "arguments": text,
                }
            case None:
                return
        item.status = status
        yield self._item("done", item)

    def _begin(self, item: OutputItem) -> Iterator[StreamEvent]:
        yield from self.close()
        self.items.append(item)
        self._open = item
        yield self._item("added", item)
        match item:
            case MessageItem():
                yield self._part("added", item, OutputText())
            case ReasoningItem():
                yield self._part("added", item, ReasoningText())

    def _delta(self, kind: str, text: str, **fields: Any) -> StreamEvent:
        assert self._open is not None, "an item has begun"
        self._pieces.append(text)
        return {"type": kind, **self._place(self._open, **fields), "delta": text}

    def _item(self, what: str, item: OutputItem) -> StreamEvent:
        index = len(self.items) - 1
        kind = f"response.output_item.{what}"
        return {"type": kind, "output_index": index, "item": item.model_dump()}

    def _part(self, what: str, item: OutputItem, part: OutputText | ReasoningText) -> StreamEvent:
        place = self._place(item, content_index=0)
        return {"type": f"response.content_part.{what}", **place, "part": part.model_dump()}

    def _place(self, item: OutputItem, **fields: Any) -> dict[str, Any]:
        return {"item_id": item.id, "output_index": len(self.items) - 1, **fields}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
