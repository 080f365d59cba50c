"""Reasoning, answers of several parts and failures in the responses of each API family.

The texts are written here in place of a model's: the default one does not reason.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ingot.engine import Completion, Timings
from ingot.reply import CallStyle, Marks, ReplyStyle, read_tools
from ingot.server.anthropic.messages import MessageResponder
from ingot.server.chat import ReplyReader
from ingot.server.errors import ApiError
from ingot.server.generation import Piece
from ingot.server.openai.response_object import ResponseBuilder
from ingot.server.openai.responses import ResponseStore, StoredResponse
from ingot.server.openai.responses_body import Item, ResponsesBody

CALL = '<tool_call>{"name": "now", "arguments": {"zone": 1}}</tool_call>'
TEXT = f"<think>\nWhat time?\n</think>\n\nI look.\n{CALL}\n{CALL}"
TIMINGS = Timings(10, 0.1, 5, 4, 0.1, reused_tokens=4)
STYLE = ReplyStyle(CallStyle.HERMES, Marks("<think>", "</think>"))


class Words:
    """A tokenizer whose tokens are words."""

    def encode(self, text: str, *, add_special: bool) -> list[str]:
        assert not add_special
        return text.split()


@dataclass
class Written:
    """A text that was written, in place of a `Generation`."""

    text: str
    error: Exception | None = None
    model: str = "reasoner"
    requests: list[Any] = field(default_factory=lambda: [SimpleNamespace(timings=TIMINGS)])
    warnings: list[str] | None = None
    llm: Any = field(default_factory=lambda: SimpleNamespace(tokenizer=Words()))

    @property
    def done(self) -> Completion:
        return Completion(self.text, (1, 2, 3, 4, 5), "stop", TIMINGS, seed=0)

    async def results(self) -> list[Completion]:
        return [self.done]

    async def pieces(self, *, progress: bool = False) -> AsyncIterator[Piece]:  # noqa: ARG002
        for at in range(0, len(self.text), 3):
            yield Piece(0, self.text[at : at + 3])
        if self.error is not None:
            raise self.error
        yield Piece(0, "", self.done)


def reader(*, parallel: bool = True) -> ReplyReader:
    return ReplyReader(STYLE, read_tools([{"name": "now"}]), False, parallel_tool_calls=parallel)


async def events_of(stream: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    found = []
    async for made in stream:
        for block in made.decode().strip().split("\n\n"):
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def forget(*_: object) -> None:
    """Keep no message."""


def test_a_message_has_its_blocks_in_order() -> None:
    whole = asyncio.run(MessageResponder(Written(TEXT), reader(), forget).whole())
    kinds = [block["type"] for block in whole["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert whole["content"][0]["thinking"] == "What time?"
    assert whole["content"][1]["text"] == "I look."
    assert whole["content"][2]["input"] == {"zone": 1}
    assert whole["stop_reason"] == "tool_use"
    assert whole["usage"]["input_tokens"] == 6
    assert whole["usage"]["cache_read_input_tokens"] == 4
    one = asyncio.run(MessageResponder(Written(TEXT), reader(parallel=False), forget).whole())
    assert len(one["content"]) == 3


def test_a_streamed_message_has_the_same_blocks() -> None:
    events = asyncio.run(events_of(MessageResponder(Written(TEXT), reader(), forget).events()))
    blocks: list[dict[str, Any]] = []
    open_block: int | None = None
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert open_block is None
                open_block = event["index"]
                assert open_block == len(blocks)
                blocks.append({**event["content_block"], "json": ""})
            case "content_block_delta":
                assert event["index"] == open_block
                delta = event["delta"]
                match delta.pop("type"):
                    case "text_delta":
                        blocks[-1]["text"] += delta["text"]
                    case "thinking_delta":
                        blocks[-1]["thinking"] += delta["thinking"]
                    case "input_json_delta":
                        blocks[-1]["json"] += delta["partial_json"]
            case "content_block_stop":
                assert event["index"] == open_block
                open_block = None
    assert open_block is None
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert (blocks[0]["thinking"], blocks[1]["text"]) == ("What time?", "I look.")
    assert [json.loads(block["json"]) for block in blocks[2:]] == [{"zone": 1}] * 2
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_arguments_may_be_cut_or_missing() -> None:
    cut = Written('<tool_call>{"name": "now", "arguments": {"zone": "eas')
    whole = asyncio.run(MessageResponder(cut, reader(), forget).whole())
    assert (whole["content"], whole["stop_reason"]) == ([], "end_turn")
    none = Written('<tool_call>{"name": "now"}</tool_call>')
    whole = asyncio.run(MessageResponder(none, reader(), forget).whole())
    assert whole["content"][0]["input"] == {}
    for odd in (r'"\ud83d"', "[" * 500 + "]" * 500):  # half a character, too deep to be told
        deep = Written(f'<tool_call>{{"name": "now", "arguments": {{"zone": {odd}}}}}</tool_call>')
        whole = asyncio.run(MessageResponder(deep, reader(), forget).whole())
        assert whole["content"][0]["input"] == {}


def test_what_fails_in_the_middle_is_told() -> None:
    error = ApiError(503, "the server is stopping", code="server_stopping", retry=True)
    events = asyncio.run(
        events_of(MessageResponder(Written("Hi", error), reader(), forget).events())
    )
    assert events[-1]["error"] == {
        "type": "overloaded_error",
        "message": "the server is stopping",
        "details": {"error_code": "server_stopping"},
    }
    answers = responses(Written("Hi", error), [])
    *_, last = asyncio.run(events_of(answers.events()))
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "server_stopping"
    assert last["response"]["status"] == "failed"


def responses(written: Written, kept: list[Any], **fields: Any) -> ResponseBuilder:
    body = ResponsesBody(input="What time is it?", **fields)
    return ResponseBuilder(written, body, reader(), kept.append)


def test_a_response_has_its_items_in_order() -> None:
    kept: list[Any] = []
    whole = asyncio.run(responses(Written(TEXT), kept).whole())
    kinds = [item["type"] for item in whole["output"]]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    assert whole["output"][0]["content"] == [{"type": "reasoning_text", "text": "What time?"}]
    assert whole["output"][1]["content"][0]["text"] == "I look."
    assert whole["output"][2]["arguments"] == '{"zone": 1}'
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] == 2
    assert whole["usage"]["input_tokens_details"]["cached_tokens"] == 4
    assert [answer.id for answer in kept] == [whole["id"]]
    asyncio.run(responses(Written(TEXT), kept, store=False).whole())
    assert len(kept) == 1


def test_a_streamed_response_grows_to_the_same_items() -> None:
    events = asyncio.run(events_of(responses(Written(TEXT), []).events()))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    texts = ["", "", "", ""]
    for event in events:
        if event["type"].endswith(".delta"):
            texts[event["output_index"]] += event["delta"]
    assert texts == ["What time?", "I look.", '{"zone": 1}', '{"zone": 1}']
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    final = events[-1]["response"]
    assert events[-1]["type"] == "response.completed"
    assert done == final["output"]
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert {item["status"] for item in added} == {"in_progress"}
    kinds = [event["type"] for event in events if "reasoning" in event["type"]]
    assert kinds[-1] == "response.reasoning_text.done"


@pytest.mark.parametrize(("answers", "characters"), [(3, 1 << 20), (100, 400)])
def test_answers_are_kept_within_bounds(answers: int, characters: int) -> None:
    kept = ResponseStore(answers, characters)
    item = Item(type="message", role="user", content="\ud800")
    for number in range(9):
        kept.add(str(number), StoredResponse({"number": number}, (item,)))
    assert 1 < len(kept) <= 3
    assert kept.find("0") is None
    newest = kept.find("8")
    assert newest is not None
    assert newest.response == {"number": 8}
    assert kept.remove("8")
    assert not kept.remove("8")
    assert kept.find("8") is None
    kept.add("large", StoredResponse({}, (Item(content="a" * characters),)))
    assert len(kept) == 0  # it alone is too much
