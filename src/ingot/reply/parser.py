"""ReplyParser: from the text a model writes, piece by piece, to what it says.

Nothing is shown that may still become a mark, and nothing of the text is lost: what begins like
a call and is none (another name, no JSON) comes out as part of the answer. Only marks, and white
space around reasoning and calls, are left out. The borders of pieces change nothing.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from ingot.reply.calls import BARE, OPENERS, Calls
from ingot.reply.events import Content, Event, Reasoning, Reply, joined, merged
from ingot.reply.harmony import Channels
from ingot.reply.reader import Mismatch, Reader, Reading, literal, one_of, spaces
from ingot.reply.style import CallStyle, Marks, ReplyStyle
from ingot.reply.tools import Tool

_ALL = re.compile(r"(?s:.+)")


class ReplyParser:
    """Reads one text; without tools, nothing in it is a call."""

    def __init__(
        self,
        style: ReplyStyle,
        tools: Sequence[Tool] = (),
        *,
        begins_in_reasoning: bool = False,
    ) -> None:
        """`begins_in_reasoning`: the prompt has opened it (see `ReplyStyle.is_opened_by`)."""
        self._style = style
        self._reader = Reader()
        self._events: list[Event] = []
        by_name = {tool.name: tool for tool in tools}
        self._calls = Calls(self._reader, by_name, self._events.append)
        self._openers = OPENERS[style.calls] if tools else ()
        self._bare = BARE.get(style.calls, "") if tools else ""
        if style.thinking:  # a bracket that may begin either begins reasoning
            self._bare = self._bare.replace(style.thinking.open[0], "")
        if style.calls is CallStyle.HARMONY:
            self._reading = Channels(self._reader, self._calls, self._events.append).read()
        else:
            self._reading = self._text(begins_in_reasoning)
        next(self._reading)

    def push(self, piece: str) -> list[Event]:
        """Take the next piece: what is certain by now."""
        if piece:
            self._reading.send(piece)
        return self._taken()

    def finish(self) -> list[Event]:
        """Hear that the text has ended: what was held back."""
        with suppress(StopIteration):
            self._reading.send("")
        return self._taken()

    @property
    def tool_calls(self) -> int:
        """How many calls have begun so far."""
        return self._calls.count

    def _taken(self) -> list[Event]:
        events = merged(self._events)
        self._events.clear()
        return events

    def _text(self, begins_in_reasoning: bool) -> Reading[None]:
        reader, thinking = self._reader, self._style.thinking
        if thinking and begins_in_reasoning:
            yield from self._opened(thinking)
        # Reasoning and calls without a mark come at the beginning, before anything else.
        openers = (*self._openers, *([thinking.open] if thinking else []))
        bare = self._bare
        while char := (yield from reader.peek()):
            firsts = bare + "".join(opener[0] for opener in openers)
            if not firsts:
                reader.advance_over(_ALL)
            elif char.isspace() or (char == ";" and bare and self._calls.count):
                reader.advance()  # it may stand before a call, or between two
                continue
            elif char in firsts:
                with suppress(Mismatch):
                    yield from self._marked(openers, char in bare)
                    continue
            else:
                reader.advance_over(_run_without(firsts))
            self._show(Content)
            openers, bare = self._openers, ""
        self._show(Content)

    def _marked(self, openers: Sequence[str], is_bare: bool) -> Reading[None]:
        """Reasoning or calls."""
        if is_bare:
            yield from self._calls.bare()
        else:
            opener = yield from one_of(self._reader, openers)
            if (thinking := self._style.thinking) and opener == thinking.open:
                yield from self._leave_out_spaces()
                yield from self._reasoning(thinking)
                return
            yield from self._calls.after(opener)
        yield from self._leave_out_spaces()

    def _opened(self, marks: Marks) -> Reading[None]:
        """Reasoning that the prompt has opened; a model may open it once more."""
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
        """Read up to the mark that closes it."""
        reader = self._reader
        run = _run_without(marks.close[0])
        while char := (yield from reader.peek()):
            if char.isspace():
                reader.advance()  # it may stand before the mark
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
        """Behind a mark, which goes too."""
        self._reader.release()
        yield from spaces(self._reader)
        self._reader.release()

    def _show(self, kind: type[Content] | type[Reasoning]) -> None:
        if text := self._reader.release():
            self._events.append(kind(text))


@cache
def _run_without(firsts: str) -> re.Pattern[str]:
    """Text in which no mark begins and no white space comes."""
    return re.compile(rf"[^\s{re.escape(firsts)}]+")


def parse_reply(
    text: str,
    style: ReplyStyle,
    tools: Sequence[Tool] = (),
    *,
    begins_in_reasoning: bool = False,
) -> Reply:
    """What a whole text says."""
    parser = ReplyParser(style, tools, begins_in_reasoning=begins_in_reasoning)
    return joined([*parser.push(text), *parser.finish()])
