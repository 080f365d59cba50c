"""The output items of `/v1/responses` about tools of MCP servers, and the events about them."""

from collections.abc import Iterator, Mapping

from ingot.reply import Event, ToolCallArguments, ToolCallBegin
from ingot.server.mcp.rounds import CallRun
from ingot.server.mcp.servers import OfferedTool
from ingot.server.openai.response_items import (
    McpApprovalRequestItem,
    McpCallItem,
    McpListToolsItem,
    Output,
    OutputItem,
    Status,
    StreamEvent,
)
from ingot.server.openai.shared import new_id


class McpOutput(Output):
    """The items of a response whose request has tools of MCP servers."""

    def __init__(self, offered: Mapping[str, OfferedTool]) -> None:
        super().__init__()
        self._offered = offered
        self._waiting: list[McpCallItem] = []  # calls that have not run

    def listed(self, known: frozenset[str]) -> Iterator[StreamEvent]:
        """The lists of tools, of servers that the conversation has no list of."""
        tools = self._offered.values()
        for label in dict.fromkeys(tool.connection.name for tool in tools):
            if label in known:
                continue
            listed = [tool.tool.as_json() for tool in tools if tool.connection.name == label]
            item = McpListToolsItem(id=new_id("mcpl_"), server_label=label, tools=listed)
            self.items.append(item)
            yield self._item("added", item.model_copy(update={"tools": []}))
            yield {"type": "response.mcp_list_tools.in_progress", **self._place(item)}
            yield {"type": "response.mcp_list_tools.completed", **self._place(item)}
            yield self._item("done", item)

    def approved(self, run: CallRun, request_id: str) -> Iterator[StreamEvent]:
        """A call that the client has approved, and its result."""
        item = _call_item(run.tool)
        item.arguments, item.approval_request_id = run.call.arguments, request_id
        self.items.append(item)
        self._waiting.append(item)
        yield self._item("added", item)
        yield from self.ran(CallRun(run.call, run.tool))
        yield from self.ran(run)

    def push(self, part: Event) -> Iterator[StreamEvent]:
        """Add a part of the reply and return its events."""
        match part:
            case ToolCallBegin(_, _, name) if name in self._offered:
                yield from self.close()
                tool = self._offered[name]
                item: OutputItem = _call_item(tool) if tool.runs else _request_item(tool)
                self.items.append(item)
                self._open = item
                if tool.runs:
                    yield self._item("added", item)
            case ToolCallArguments(_, text) if isinstance(self._open, McpCallItem):
                yield self._delta("response.mcp_call_arguments.delta", text)
            case ToolCallArguments(_, text) if isinstance(self._open, McpApprovalRequestItem):
                self._pieces.append(text)  # a request is told as a whole
            case _:
                yield from super().push(part)

    def close(self, status: Status = "completed") -> Iterator[StreamEvent]:
        """Close the open item; calls are done when they have run."""
        item, text = self._open, "".join(self._pieces)
        if not isinstance(item, (McpCallItem, McpApprovalRequestItem)):
            yield from super().close(status)
            return
        self._open = None
        self._pieces.clear()
        item.arguments = text
        if isinstance(item, McpCallItem):
            done = {"type": "response.mcp_call_arguments.done", **self._place(item)}
            yield {**done, "arguments": text}
            if status == "completed":
                self._waiting.append(item)
            else:
                item.status = status
                yield self._item("done", item)
        elif status == "completed":
            yield self._item("added", item)
            yield self._item("done", item)
        else:  # nobody can approve half a call
            self.items.pop()

    def ran(self, run: CallRun) -> Iterator[StreamEvent]:
        """The events of a call that begins to run, or that has run."""
        item = self._waiting[0]
        index = self.items.index(item)
        place: StreamEvent = {"item_id": item.id, "output_index": index}
        if run.result is None:
            yield {"type": "response.mcp_call.in_progress", **place}
            return
        del self._waiting[0]
        if run.result.is_error:
            item.status, item.error = "failed", run.result.text
        else:
            item.status, item.output = "completed", run.result.text
        yield {"type": f"response.mcp_call.{item.status}", **place}
        done = {"type": "response.output_item.done", "output_index": index}
        yield {**done, "item": item.model_dump()}


def _call_item(tool: OfferedTool) -> McpCallItem:
    return McpCallItem(id=new_id("mcp_"), server_label=tool.connection.name, name=tool.tool.name)


def _request_item(tool: OfferedTool) -> McpApprovalRequestItem:
    return McpApprovalRequestItem(
        id=new_id("mcpr_"), server_label=tool.connection.name, name=tool.tool.name
    )
