"""ToolCallReader: reads tool calls in the style of a model.

In: a reader after the marker that opens a call, or at the first character of a call without one.
Out: events with the name of each call and its arguments, passed to `emit`. A call is certain once
its name is one of the tools and its arguments begin as an object or with a tag. From then on the
arguments are emitted piece by piece, as long as they are valid JSON. Before that, anything
unexpected raises `Mismatch`, and the reader still holds all of the text.
"""

from collections.abc import Callable, Collection, Mapping

from ingot.reply import json_reader, tagged_arguments
from ingot.reply.events import Event, ToolCallArguments, ToolCallBegin, new_call_id
from ingot.reply.style import (
    CALL_BEGIN,
    CALL_END,
    CALL_SEP,
    CALLS_BEGIN,
    CALLS_END,
    FUNCTION_OPEN,
    GRANITE_CLOSE,
    GRANITE_OPEN,
    HERMES_CLOSE,
    HERMES_OPEN,
    KIMI_ARGUMENTS,
    KIMI_BEGIN,
    KIMI_END,
    MINIMAX_OPEN,
    MISTRAL_ARGS,
    MISTRAL_CALLS,
    PYTHON_TAG,
    SECTION_BEGIN,
    SECTION_END,
    CallStyle,
)
from ingot.reply.tagged_arguments import GLM_TAGS, MINIMAX_TAGS, QWEN_TAGS, Tags
from ingot.reply.text_reader import (
    Mismatch,
    Reader,
    Reading,
    attempt,
    literal,
    one_of,
    spaces,
    up_to,
)
from ingot.reply.tools import Tool

_FENCE = "```"
_FENCED = ("json", "tool_call")  # the languages that models give to a fence around calls
# The keys of a call without a marker. Any other key shows that an object is part of the answer.
_KEYS = ("arguments", "function", "id", "name", "parameters", "type")

# Tags that models of other styles write, too.
_COMMON = {HERMES_OPEN: HERMES_CLOSE, "<tools>": "</tools>", "<function_call>": "</function_call>"}
# The markers of each style; the first one is the one its template writes.
_OPENERS = {
    CallStyle.HERMES: (HERMES_OPEN,),
    CallStyle.LLAMA3: (PYTHON_TAG,),
    CallStyle.MISTRAL: (MISTRAL_CALLS,),
    CallStyle.MISTRAL_ARGS: (MISTRAL_CALLS,),
    CallStyle.GRANITE: (GRANITE_OPEN,),
    CallStyle.DEEPSEEK: (CALLS_BEGIN,),
    CallStyle.DEEPSEEK_V31: (CALLS_BEGIN,),
    CallStyle.QWEN_XML: (HERMES_OPEN, FUNCTION_OPEN),
    CallStyle.GLM: (HERMES_OPEN,),
    CallStyle.MINIMAX: (MINIMAX_OPEN,),
    CallStyle.KIMI: (SECTION_BEGIN,),
    CallStyle.HARMONY: (),
    CallStyle.JSON: (HERMES_OPEN,),
}
BARE = "{[`"  # the first characters of calls without a marker


def own_opener(style: CallStyle) -> str | None:
    """The marker that the calls of a style begin with."""
    return _OPENERS[style][0] if _OPENERS[style] else None


def openers(style: CallStyle) -> tuple[str, ...]:
    """All markers that may begin a call in a text of a model of this style."""
    if style is CallStyle.HARMONY:
        return ()
    return tuple(dict.fromkeys((*_OPENERS[style], *_COMMON)))


class ToolCallReader:
    """Reads the tool calls of one text."""

    def __init__(
        self, reader: Reader, tools: Mapping[str, Tool], emit: Callable[[Event], None]
    ) -> None:
        """`tools`: those that may be called, by name."""
        self._reader = reader
        self._tools = tools
        self._emit = emit
        self._ids: set[str] = set()
        self.count = 0  # calls that have begun
        self.complete = 0  # calls whose arguments are complete

    def after(self, opener: str) -> Reading[None]:
        """Read the calls after a marker of `openers`."""
        match opener:
            case _ if opener == HERMES_OPEN:
                yield from self._in_tool_call()
            case _ if opener == FUNCTION_OPEN:
                yield from self._functions(QWEN_TAGS)
            case _ if opener == MINIMAX_OPEN:
                yield from spaces(self._reader)
                yield from self._opened_functions(MINIMAX_TAGS)
            case _ if opener == SECTION_BEGIN:
                yield from self._kimi()
            case _ if opener == GRANITE_OPEN:
                yield from self._granite()
            case _ if opener == MISTRAL_CALLS:
                yield from self._mistral()
            case _ if opener == CALLS_BEGIN:
                yield from self._deepseek()
            case _ if opener in _COMMON:
                yield from self._tagged(_COMMON[opener])
            case _:
                yield from spaces(self._reader)
                yield from self._objects()
                self._reader.release()

    def bare(self, first: str) -> Reading[None]:
        """Read calls without a marker after their first character, which is one of `BARE`."""
        match first:
            case "[":
                yield from self._list_items(_KEYS)
            case "`":
                yield from literal(self._reader, _FENCE[1:])
                if (yield from self._reader.peek()).isalpha():
                    yield from one_of(self._reader, _FENCED)
                yield from self._tagged(_FENCE, _KEYS)
            case _:
                yield from self._members(_KEYS)
        self._reader.release()

    def arguments(self, name: str, id: str = "") -> Reading[None]:
        """Read the arguments of a call whose name (and maybe id) is known."""
        if name not in self._tools or (yield from self._reader.peek()) != "{":
            raise Mismatch
        index = self._begin(name, id)
        self._reader.sink = self._arguments_of(index)
        try:
            yield from json_reader.value(self._reader)
            self.complete += 1
        finally:
            self._reader.sink = None

    def _begin(self, name: str, id: str = "") -> int:
        self._reader.release()
        index, self.count = self.count, self.count + 1
        if not id or id in self._ids:
            id = new_call_id()
        self._ids.add(id)
        self._emit(ToolCallBegin(index, id, name))
        return index

    def _in_tool_call(self) -> Reading[None]:
        """Read `<tool_call>`: what follows it tells the families apart that share this marker."""
        yield from spaces(self._reader)
        match (yield from self._reader.peek()):
            case "{" | "[":
                yield from self._tagged(HERMES_CLOSE)
            case "<":
                yield from self._opened_functions(QWEN_TAGS)
            case _:
                yield from self._functions(GLM_TAGS)

    def _opened_functions(self, tags: Tags) -> Reading[None]:
        """Read functions from their first tag; `Mismatch` if it is another tag."""
        if (yield from attempt(self._reader, one_of(self._reader, [tags.name]))) is None:
            raise Mismatch
        yield from self._functions(tags)

    def _functions(self, tags: Tags) -> Reading[None]:
        """Read functions between tags, from after the first tag to the closing one."""
        mark: str | None = tags.name
        while mark == tags.name:
            name = yield from tagged_arguments.name_of(self._reader, tags)
            if name not in self._tools:
                raise Mismatch
            following = yield from tagged_arguments.after_name(self._reader, tags)
            index = self._begin(name)
            parameters = self._tools[name].parameters
            self.complete += yield from tagged_arguments.arguments(
                self._reader, tags, parameters, following, self._arguments_of(index)
            )
            self._reader.release()
            if not tags.close:
                return
            yield from spaces(self._reader)
            ends = one_of(self._reader, (tags.name, tags.close))
            mark = yield from attempt(self._reader, ends)

    def _arguments_of(self, index: int) -> Callable[[str], None]:
        return lambda text: self._emit(ToolCallArguments(index, text))

    def _tagged(self, close: str, keys: Collection[str] | None = None) -> Reading[None]:
        """Read calls up to a closing marker; models also write several, each on a line."""
        yield from spaces(self._reader)
        yield from self._objects(keys)
        yield from spaces(self._reader)
        while (yield from self._reader.peek()) == "{":
            yield from self._object(keys)
            yield from spaces(self._reader)
        yield from literal(self._reader, close)
        self._reader.release()

    def _granite(self) -> Reading[None]:
        """Read Granite's calls, and Phi's, which have a closing marker."""
        yield from spaces(self._reader)
        yield from self._objects()
        yield from spaces(self._reader)
        if (yield from self._reader.peek()) == GRANITE_CLOSE[0]:
            yield from literal(self._reader, GRANITE_CLOSE)
        self._reader.release()

    def _mistral(self) -> Reading[None]:
        """Read a list of calls, or a name and its arguments."""
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
        """Read calls with markers, up to the one that closes all of them."""
        yield from spaces(self._reader)
        yield from literal(self._reader, CALL_BEGIN)
        mark = CALL_BEGIN
        while mark == CALL_BEGIN:
            name = yield from up_to(self._reader, CALL_SEP[0])
            yield from literal(self._reader, CALL_SEP)
            fenced = (yield from self._reader.peek()) != "{"
            if fenced:  # the text before the separator was the type of tool
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

    def _kimi(self) -> Reading[None]:
        """Read calls with markers, each with an id that contains its name."""
        yield from spaces(self._reader)
        yield from literal(self._reader, KIMI_BEGIN)
        mark = KIMI_BEGIN
        while mark == KIMI_BEGIN:
            id = (yield from up_to(self._reader, KIMI_ARGUMENTS[0])).strip()
            yield from literal(self._reader, KIMI_ARGUMENTS)
            yield from spaces(self._reader)
            name = id.removeprefix("functions.")
            yield from self.arguments(name.rpartition(":")[0] or name, id)
            yield from spaces(self._reader)
            yield from literal(self._reader, KIMI_END)
            self._reader.release()
            yield from spaces(self._reader)
            mark = yield from one_of(self._reader, (KIMI_BEGIN, SECTION_END))
        self._reader.release()

    def _objects(self, keys: Collection[str] | None = None) -> Reading[None]:
        """Read an object that is a call, or a list of such objects; `keys` as for `_object`."""
        if (yield from self._reader.peek()) != "[":
            yield from self._object(keys)
        else:
            self._reader.advance()
            yield from self._list_items(keys)

    def _list_items(self, keys: Collection[str] | None) -> Reading[None]:
        """Read the calls of a list, after its opening bracket."""
        char = ","
        while char == ",":
            yield from json_reader.blanks(self._reader)
            yield from self._object(keys)
            yield from json_reader.blanks(self._reader)
            char = yield from self._reader.peek()
            if char == ",":
                self._reader.advance()
        yield from literal(self._reader, "]")

    def _object(self, keys: Collection[str] | None = None) -> Reading[None]:
        """Read `{"name": ..., "arguments": {...}}`, in any order and with other keys.

        `keys` are those that it may have; None: any. OpenAI's form, `{"type": "function",
        "function": {"name": ...}}`, is accepted, too.
        """
        yield from literal(self._reader, "{")
        yield from self._members(keys)

    def _members(self, keys: Collection[str] | None) -> Reading[None]:
        """Read such an object after its opening bracket."""
        reader = self._reader
        name: str | None = None
        early: str | None = None  # arguments that came before the name
        begun = False
        char = ","
        while char == ",":
            yield from json_reader.blanks(reader)
            key = yield from json_reader.key(reader, keys)
            if key == "name" and name is None:
                name = yield from json_reader.string(reader, self._tools)
            elif key == "function" and not begun and (yield from reader.peek()) == "{":
                yield from self._object(keys)
                begun = True
            elif key not in ("arguments", "parameters") or begun or early:
                yield from json_reader.value(reader)
            elif name is not None:
                yield from self.arguments(name)
                begun = True
            else:
                early = yield from self._held_object()
            yield from json_reader.blanks(reader)
            char = yield from reader.peek()
            if char == ",":
                reader.advance()
        yield from literal(reader, "}")
        if not begun:
            if name is None:
                raise Mismatch
            self._emit(ToolCallArguments(self._begin(name), early or "{}"))
            self.complete += 1

    def _held_object(self) -> Reading[str]:
        """Read an object without emitting it yet."""
        if (yield from self._reader.peek()) != "{":
            raise Mismatch
        read: list[str] = []
        before = self._reader.release()
        self._reader.sink = read.append
        try:
            yield from json_reader.value(self._reader)
        finally:
            self._reader.sink = None
            self._reader.hold(before + "".join(read))
        return "".join(read)
