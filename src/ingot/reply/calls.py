"""Calls of tools, as the styles write them.

Comes in: a reader at the place behind a call's first mark, or at its first bracket. Goes out:
the beginning of each call and its arguments, to `emit`. A call is certain when its name is one
of the tools and its arguments begin as an object; from there on the arguments are given out as
they come, as far as they are JSON. Before that, what does not fit raises `Mismatch`, and all of
it is still held.
"""

from collections.abc import Callable, Collection

from ingot.reply import json_text
from ingot.reply.events import Event, ToolCallArguments, ToolCallBegin, new_call_id
from ingot.reply.reader import Mismatch, Reader, Reading, literal, one_of, spaces, up_to
from ingot.reply.style import (
    CALL_BEGIN,
    CALL_END,
    CALL_SEP,
    CALLS_BEGIN,
    CALLS_END,
    GRANITE_CLOSE,
    GRANITE_OPEN,
    HERMES_CLOSE,
    HERMES_OPEN,
    MISTRAL_ARGS,
    MISTRAL_CALLS,
    PYTHON_TAG,
    CallStyle,
)

_FENCE = "```"

# The marks that calls of a style begin with.
OPENERS = {
    CallStyle.HERMES: (HERMES_OPEN,),
    CallStyle.LLAMA3: (PYTHON_TAG,),
    CallStyle.MISTRAL: (MISTRAL_CALLS,),
    CallStyle.MISTRAL_ARGS: (MISTRAL_CALLS,),
    CallStyle.GRANITE: (GRANITE_OPEN,),
    CallStyle.DEEPSEEK: (CALLS_BEGIN,),
    CallStyle.DEEPSEEK_V31: (CALLS_BEGIN,),
    CallStyle.HARMONY: (),
    CallStyle.JSON: (HERMES_OPEN,),
}
# Styles in which a text may begin with a call that has no mark, and how such calls begin.
BARE = {CallStyle.LLAMA3: "{[", CallStyle.JSON: "{[`"}


class Calls:
    """Reads the calls of one text."""

    def __init__(
        self, reader: Reader, names: Collection[str], emit: Callable[[Event], None]
    ) -> None:
        self._reader = reader
        self._names = names
        self._emit = emit
        self.count = 0

    def after(self, opener: str) -> Reading[None]:
        """Read what stands behind a mark of `OPENERS`."""
        match opener:
            case _ if opener == HERMES_OPEN:
                yield from self._tagged(HERMES_CLOSE)
            case _ if opener == GRANITE_OPEN:
                yield from self._granite()
            case _ if opener == MISTRAL_CALLS:
                yield from self._mistral()
            case _ if opener == CALLS_BEGIN:
                yield from self._deepseek()
            case _:
                yield from self.bare()

    def bare(self) -> Reading[None]:
        """Read a call, or a list of calls, perhaps in a fence, without a mark."""
        yield from spaces(self._reader)
        if (yield from self._reader.peek()) == "`":
            yield from literal(self._reader, _FENCE)
            if (yield from self._reader.peek()) == "j":
                yield from literal(self._reader, "json")
            yield from self._tagged(_FENCE)
        else:
            yield from self._objects()
            self._reader.release()

    def arguments(self, name: str) -> Reading[None]:
        """Read the arguments of a call whose name is known."""
        if name not in self._names or (yield from self._reader.peek()) != "{":
            raise Mismatch
        index = self._begin(name)
        self._reader.sink = lambda text: self._emit(ToolCallArguments(index, text))
        try:
            yield from json_text.value(self._reader)
        finally:
            self._reader.sink = None

    def _begin(self, name: str) -> int:
        self._reader.release()
        index, self.count = self.count, self.count + 1
        self._emit(ToolCallBegin(index, new_call_id(), name))
        return index

    def _tagged(self, close: str) -> Reading[None]:
        """Calls up to a mark."""
        yield from spaces(self._reader)
        yield from self._objects()
        yield from spaces(self._reader)
        yield from literal(self._reader, close)
        self._reader.release()

    def _granite(self) -> Reading[None]:
        """The mark behind the calls is Phi's; Granite writes none."""
        yield from spaces(self._reader)
        yield from self._objects()
        yield from spaces(self._reader)
        if (yield from self._reader.peek()) == GRANITE_CLOSE[0]:
            yield from literal(self._reader, GRANITE_CLOSE)
        self._reader.release()

    def _mistral(self) -> Reading[None]:
        """A list of calls, or a name and its arguments."""
        yield from spaces(self._reader)
        if (yield from self._reader.peek()) in ("[", "{"):
            yield from self._objects()
        else:
            name = yield from up_to(self._reader, "[")
            yield from literal(self._reader, MISTRAL_ARGS)
            yield from spaces(self._reader)
            yield from self.arguments(name.strip())
        self._reader.release()

    def _deepseek(self) -> Reading[None]:
        """Marked calls, up to the mark behind all of them."""
        yield from spaces(self._reader)
        yield from literal(self._reader, CALL_BEGIN)
        mark = CALL_BEGIN
        while mark == CALL_BEGIN:
            name = yield from up_to(self._reader, CALL_SEP[0])
            yield from literal(self._reader, CALL_SEP)
            fenced = (yield from self._reader.peek()) != "{"
            if fenced:  # what came was the kind of tool
                name = yield from up_to(self._reader, "\n")
                yield from spaces(self._reader)
                yield from literal(self._reader, f"{_FENCE}json")
                yield from spaces(self._reader)
            yield from self.arguments(name.strip())
            yield from spaces(self._reader)
            if fenced:
                yield from literal(self._reader, _FENCE)
                yield from spaces(self._reader)
            yield from literal(self._reader, CALL_END)
            self._reader.release()
            yield from spaces(self._reader)
            mark = yield from one_of(self._reader, (CALL_BEGIN, CALLS_END))
        self._reader.release()

    def _objects(self) -> Reading[None]:
        """One object that says a call, or a list of them."""
        if (yield from self._reader.peek()) != "[":
            yield from self._object()
            return
        char = ","
        while char == ",":
            self._reader.advance()
            yield from json_text.blanks(self._reader)
            yield from self._object()
            yield from json_text.blanks(self._reader)
            char = yield from self._reader.peek()
        yield from literal(self._reader, "]")

    def _object(self) -> Reading[None]:
        """`{"name": ..., "arguments": {...}}`, in any order and with anything beside them."""
        reader = self._reader
        yield from literal(reader, "{")
        name: str | None = None
        early: str | None = None  # arguments that came before the name
        begun = False
        char = ","
        while char == ",":
            yield from json_text.blanks(reader)
            key = yield from json_text.key(reader)
            if key == "name" and name is None:
                name = yield from json_text.string(reader)
            elif key not in ("arguments", "parameters") or begun or early:
                yield from json_text.value(reader)
            elif name is not None:
                yield from self.arguments(name)
                begun = True
            else:
                early = yield from self._held_object()
            yield from json_text.blanks(reader)
            char = yield from reader.peek()
            if char == ",":
                reader.advance()
        yield from literal(reader, "}")
        if not begun:
            if name not in self._names or name is None:
                raise Mismatch
            self._emit(ToolCallArguments(self._begin(name), early or "{}"))

    def _held_object(self) -> Reading[str]:
        """An object that nobody may see yet."""
        if (yield from self._reader.peek()) != "{":
            raise Mismatch
        read: list[str] = []
        before = self._reader.release()
        self._reader.sink = read.append
        try:
            yield from json_text.value(self._reader)
        finally:
            self._reader.sink = None
            self._reader.hold(before + "".join(read))
        return "".join(read)
