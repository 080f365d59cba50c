"""ReplyParser: from the text of a model, piece by piece, to reasoning, answer and tool calls.

A call begins with a marker, or, at the beginning of a line, with its JSON or a code fence. Text
that may still become a call is held back. What begins like a call but is not one (an unknown name,
invalid JSON) becomes part of the answer. Only markers, and white space around reasoning and calls,
are left out, and what is held back when a limit cuts the text off. The boundaries of the pieces do
not change the result.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from ingot.reply.events import Content, Event, Reasoning, Reply, joined, merged
from ingot.reply.harmony import Channels
from ingot.reply.style import CallStyle, Marks, ReplyStyle
from ingot.reply.text_reader import Mismatch, Reader, Reading, literal, one_of, spaces
from ingot.reply.tool_call_reader import BARE, ToolCallReader, openers
from ingot.reply.tools import Tool

_ALL = re.compile(r"(?s:.+)")
_LIST_BEGINS = "{ \t\r\n"  # after the bracket of a list of calls


class ReplyParser:
    """Parses one text; without tools, nothing in it is a tool call."""

    def __init__(
        self,
        style: ReplyStyle,
        tools: Sequence[Tool] = (),
        *,
        begins_in_reasoning: bool = False,
    ) -> None:
        """`begins_in_reasoning`: the prompt opened the reasoning (`ReplyStyle.is_opened_by`)."""
        self._style = style
        self._reader = Reader()
        self._events: list[Event] = []
        by_name = {tool.name: tool for tool in tools}
        self._calls = ToolCallReader(self._reader, by_name, self._events.append)
        self._openers = openers(style.calls) if tools else ()
        self._bare = BARE if tools else ""
        if style.calls is CallStyle.HARMONY:
            self._reading = Channels(self._reader, self._calls, self._events.append).read()
        else:
            self._reading = self._text(begins_in_reasoning)
        next(self._reading)

    def push(self, piece: str) -> list[Event]:
        """Add a piece of text; return the events that are certain now."""
        if piece:
            self._reading.send(piece)
        return self._taken()

    def finish(self, *, cut: bool = False) -> list[Event]:
        """End the text; return the events that were held back.

        If a limit `cut` the text off, what could still have become a call is not part of the
        answer.
        """
        self._reader.is_cut = cut
        with suppress(StopIteration):
            self._reading.send("")
        return self._taken()

    @property
    def called(self) -> bool:
        """Whether the text has a tool call whose arguments are complete."""
        return self._calls.complete > 0

    def _taken(self) -> list[Event]:
        events = merged(self._events)
        self._events.clear()
        return events

    def _text(self, begins_in_reasoning: bool) -> Reading[None]:
        reader, thinking = self._reader, self._style.thinking
        if thinking and begins_in_reasoning:
            yield from self._opened(thinking)
        # Reasoning can only come first.
        marks = (*self._openers, *([thinking.open] if thinking else []))
        bare = self._bare  # empty in the middle of a line
        after_call = False
        while char := (yield from reader.peek()):
            firsts = bare + "".join(mark[0] for mark in marks)
            if not firsts:
                reader.advance_over(_ALL)
            elif char.isspace() or (char == ";" and after_call):
                reader.advance()  # it may come before a call, or between two
                if char == "\n":
                    bare = self._bare
                continue
            elif char in firsts:
                begun = self._calls.count
                try:
                    yield from self._marked(marks, char, bare)
                    after_call = self._calls.count > begun
                    bare = self._bare
                    continue
                except Mismatch:
                    is_call = self._openers and (reader.is_cut or self._calls.count > begun)
                    if reader.is_over and is_call:  # the rest of a call that is cut off
                        reader.release()
                        return
            else:
                reader.advance_over(_run_without(firsts))
            self._show(Content)
            marks, bare, after_call = self._openers, "", False
        if not (after_call and reader.is_cut):
            self._show(Content)

    def _marked(self, marks: Sequence[str], char: str, bare: str) -> Reading[None]:
        """Read reasoning or tool calls."""
        fitting = [mark[1:] for mark in marks if mark[0] == char]
        self._reader.advance()
        is_bare = char in bare
        if is_bare and fitting:  # a list of calls, or a marker in brackets
            is_bare = (yield from self._reader.peek()) in _LIST_BEGINS
        if is_bare:
            yield from self._calls.bare(char)
        else:
            mark = char + (yield from one_of(self._reader, fitting))
            if (thinking := self._style.thinking) and mark == thinking.open:
                yield from self._leave_out_spaces()
                yield from self._reasoning(thinking)
                return
            yield from self._calls.after(mark)
        yield from self._leave_out_spaces()

    def _opened(self, marks: Marks) -> Reading[None]:
        """Read reasoning that the prompt opened; a model may open it again."""
        yield from self._leave_out_spaces()
        try:
            mark = yield from one_of(self._reader, (marks.open, marks.close))
            yield from self._leave_out_spaces()
            if mark == marks.close:
                return
        except Mismatch:
            self._show(Reasoning)
        yield from self._reasoning(marks)

    def _reasoning(self, marks: Marks) -> Reading[None]:
        """Read up to the closing tag."""
        reader = self._reader
        run = _run_without(marks.close[0])
        while char := (yield from reader.peek()):
            if char.isspace():
                reader.advance()  # it may come before the tag
                continue
            reader.advance_over(run)
            if char == marks.close[0]:
                with suppress(Mismatch):
                    yield from literal(reader, marks.close)
                    yield from self._leave_out_spaces()
                    return
            self._show(Reasoning)
        self._show(Reasoning)

    def _leave_out_spaces(self) -> Reading[None]:
        """Drop a marker that was read and the white space after it."""
        self._reader.release()
        yield from spaces(self._reader)
        self._reader.release()

    def _show(self, kind: type[Content] | type[Reasoning]) -> None:
        if text := self._reader.release():
            self._events.append(kind(text))


@cache
def _run_without(firsts: str) -> re.Pattern[str]:
    """A run of text without white space in which no marker begins."""
    return re.compile(rf"[^\s{re.escape(firsts)}]+")


def parse_reply(
    text: str,
    style: ReplyStyle,
    tools: Sequence[Tool] = (),
    *,
    begins_in_reasoning: bool = False,
    cut: bool = False,
) -> Reply:
    """Parse a whole text; `cut`: a limit ended it."""
    parser = ReplyParser(style, tools, begins_in_reasoning=begins_in_reasoning)
    return joined([*parser.push(text), *parser.finish(cut=cut)])
