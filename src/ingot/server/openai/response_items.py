"""The output items of `/v1/responses`, and the stream events about them.

A reply comes in, event by event. Items go out, and the stream's events without their sequence
numbers. An item begins when the kind of content changes.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel

from ingot.reply import Content, Event, Reasoning, ToolCallArguments, ToolCallBegin
from ingot.reply.json_reader import is_value
from ingot.server.openai.shared import new_id

Status = Literal["in_progress", "completed", "incomplete"]
StreamEvent = dict[str, Any]


class OutputText(BaseModel):
    """The text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str = ""
    annotations: list[str] = []
    logprobs: list[str] = []


class ReasoningText(BaseModel):
    """The text of reasoning."""

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
    """Reasoning of the model."""

    type: Literal["reasoning"] = "reasoning"
    id: str
    status: Status = "in_progress"
    summary: list[str] = []
    content: list[ReasoningText] = []


class FunctionCallItem(BaseModel):
    """A function call."""

    type: Literal["function_call"] = "function_call"
    id: str
    status: Status = "in_progress"
    call_id: str
    name: str
    arguments: str = ""


class McpListToolsItem(BaseModel):
    """The tools of an MCP server that the model may call."""

    type: Literal["mcp_list_tools"] = "mcp_list_tools"
    id: str
    server_label: str
    tools: list[dict[str, Any]]
    error: None = None


class McpCallItem(BaseModel):
    """A call of an MCP server's tool, which this server runs."""

    type: Literal["mcp_call"] = "mcp_call"
    id: str
    status: Status | Literal["failed"] = "in_progress"
    server_label: str
    name: str
    arguments: str = ""
    output: str | None = None
    error: str | None = None
    approval_request_id: str | None = None


class McpApprovalRequestItem(BaseModel):
    """A call that this server runs if the client approves it."""

    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    id: str
    server_label: str
    name: str
    arguments: str = ""


OutputItem = (
    MessageItem
    | ReasoningItem
    | FunctionCallItem
    | McpListToolsItem
    | McpCallItem
    | McpApprovalRequestItem
)


class Output:
    """The items of one response, of which the last may still be open."""

    def __init__(self) -> None:
        self.items: list[OutputItem] = []
        self._pieces: list[str] = []  # of the open item
        self._open: OutputItem | None = None

    def push(self, part: Event) -> Iterator[StreamEvent]:
        """Add a part of the reply and return its events."""
        match part:
            case Content(text):
                if not isinstance(self._open, MessageItem):
                    yield from self._begin(MessageItem(id=new_id("msg_")))
                yield self._delta("response.output_text.delta", text, content_index=0, logprobs=[])
            case Reasoning(text):
                if not isinstance(self._open, ReasoningItem):
                    yield from self._begin(ReasoningItem(id=new_id("rs_")))
                yield self._delta("response.reasoning_text.delta", text, content_index=0)
            case ToolCallBegin(_, id, name):
                item = FunctionCallItem(id=new_id("fc_"), call_id=f"call_{id}", name=name)
                yield from self._begin(item)
            case ToolCallArguments(_, text):
                yield self._delta("response.function_call_arguments.delta", text)

    def close(self, status: Status = "completed") -> Iterator[StreamEvent]:
        """Close the open item, if there is one, and return its events."""
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
                if not is_value(text):  # the model or a stop sequence ended the text too early
                    status = "incomplete"
                yield {
                    "type": "response.function_call_arguments.done",
                    **self._place(item),
                    "name": item.name,
                    "arguments": text,
                }
            case _:
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

    def _delta(self, kind: str, text: str, **fields: object) -> StreamEvent:
        assert self._open is not None, "an item is open"
        self._pieces.append(text)
        return {"type": kind, **self._place(self._open, **fields), "delta": text}

    def _item(self, what: str, item: OutputItem) -> StreamEvent:
        index = len(self.items) - 1
        kind = f"response.output_item.{what}"
        return {"type": kind, "output_index": index, "item": item.model_dump()}

    def _part(self, what: str, item: OutputItem, part: OutputText | ReasoningText) -> StreamEvent:
        place = self._place(item, content_index=0)
        return {"type": f"response.content_part.{what}", **place, "part": part.model_dump()}

    def _place(self, item: OutputItem, **fields: object) -> StreamEvent:
        return {"item_id": item.id, "output_index": len(self.items) - 1, **fields}
