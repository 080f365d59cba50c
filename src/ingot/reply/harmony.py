"""The harmony format of gpt-oss: messages with a header that names a channel and a recipient.

    <|channel|>analysis<|message|>Let me see.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>It is warm.<|return|>

The analysis channel is reasoning; a message to a function is a tool call; everything else is the
answer. The prompt ends with `<|start|>assistant`, so a text begins in a header.
"""

import re
from collections.abc import Callable

from ingot.reply.events import Content, Event, Reasoning
from ingot.reply.style import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START
from ingot.reply.text_reader import Mismatch, Reader, Reading, literal, one_of, spaces
from ingot.reply.tool_call_reader import ToolCallReader

_ENDS = (END, RETURN, CALL)
_LONGEST_HEADER = 200
_RECIPIENT = " to="
_HEADER = re.compile(
    r"(?: to=(?P<before>[\w.-]+))?(?:<\|channel\|>(?P<channel>\w+))?(?: to=(?P<after>[\w.-]+))?"
    r" ?(?:(?:<\|constrain\|>)?\w+)?"
)
_FUNCTIONS = "functions."
_RUN = re.compile(r"[^<]+")


class Channels:
    """Reads the messages of one text."""

    def __init__(
        self, reader: Reader, calls: ToolCallReader, emit: Callable[[Event], None]
    ) -> None:
        self._reader = reader
        self._calls = calls
        self._emit = emit

    def read(self) -> Reading[None]:
        """Read the whole text."""
        started = True  # by the prompt
        is_first = True
        while (yield from self._reader.peek()):
            kind: type[Content] | type[Reasoning] = Content
            try:
                if not started:
                    yield from spaces(self._reader)
                    yield from literal(self._reader, START)
                if not is_first:
                    yield from literal(self._reader, "assistant")
                header = yield from self._header()
                if recipient := header["before"] or header["after"]:
                    yield from self._call(recipient)
                else:
                    self._reader.release()
                    kind = Reasoning if header["channel"] == "analysis" else Content
            except Mismatch:
                if self._reader.is_over and self._reader.is_cut:  # in a header
                    self._reader.release()
                    return
                self._show(Content)  # not a message: part of the answer, unchanged
            is_first = False
            started = yield from self._body(kind)
        self._show(Content)

    def _header(self) -> Reading[re.Match[str]]:
        text = ""
        while True:
            char = yield from self._reader.peek()
            if char == "<":
                mark = yield from one_of(self._reader, (CHANNEL, CONSTRAIN, MESSAGE))
                if mark == MESSAGE:
                    break
                text += mark
            else:
                text += char
                is_known = CHANNEL in text or _RECIPIENT.startswith(text[: len(_RECIPIENT)])
                if not char or not is_known or len(text) > _LONGEST_HEADER:
                    raise Mismatch
                self._reader.advance()
        header = _HEADER.fullmatch(text)
        if header is None:
            raise Mismatch
        return header

    def _call(self, recipient: str) -> Reading[None]:
        yield from spaces(self._reader)
        if not recipient.startswith(_FUNCTIONS):
            raise Mismatch
        yield from self._calls.arguments(recipient.removeprefix(_FUNCTIONS))
        yield from spaces(self._reader)

    def _body(self, kind: type[Content] | type[Reasoning]) -> Reading[bool]:
        """Read up to the end of the message; True if another one has begun."""
        while char := (yield from self._reader.peek()):
            if char != "<":
                self._reader.advance_over(_RUN)
                self._show(kind)
                continue
            try:
                mark = yield from one_of(self._reader, (*_ENDS, START))
            except Mismatch:
                if self._reader.is_over and self._reader.is_cut:
                    self._reader.release()
                self._show(kind)
                continue
            if mark == START:
                return True
            self._reader.release()
            return False
        self._show(kind)
        return False

    def _show(self, kind: type[Content] | type[Reasoning]) -> None:
        if text := self._reader.release():
            self._emit(kind(text))
