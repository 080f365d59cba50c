"""Arguments that are written one by one, between tags, their texts as they are.

    <function=write>                       write
    <parameter=path>                       <arg_key>path</arg_key>
    notes.txt                              <arg_value>notes.txt</arg_value>
    </parameter>                           <arg_key>lines</arg_key>
    <parameter=lines>                      <arg_value>3</arg_value>
    3
    </parameter>
    </function>

Comes in: a reader at the place behind a call's name. Goes out: the arguments as JSON, piece by
piece: strings as they come, other values when they are complete. A text may hold the tags too, so
a value ends only where behind its tag comes what has to. MiniMax's tags are like the left ones, but
for names in quotes and values without lines of their own. Models leave tags out: one that opens
the next parameter on a new line ends a value as well, and so does the end of the function.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ingot.reply.reader import Mismatch, Reader, Reading, attempt, literal, one_of, spaces, up_to
from ingot.reply.style import (
    ARG_KEY_CLOSE,
    ARG_KEY_OPEN,
    ARG_VALUE_CLOSE,
    ARG_VALUE_OPEN,
    FUNCTION_CLOSE,
    FUNCTION_OPEN,
    HERMES_CLOSE,
    HERMES_OPEN,
    MINIMAX_CLOSE,
    MINIMAX_OPEN,
    PARAMETER_CLOSE,
    PARAMETER_OPEN,
)
from ingot.reply.values import ONLY_TEXT, as_json, escaped, kinds_of_argument

_NO_NAME = "<>\n"
_RUN = re.compile(r"[^<\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What stands around the parts of a call."""

    open: str  # before calls
    key: str
    keyed: tuple[str, ...]  # between a key and its value
    value_end: str
    end: str  # behind the last argument
    close: str = ""  # behind calls; nothing where the end of one is all
    name: str = ""  # before the name of the function
    named: str = ""
    on_lines: bool = False  # whether a value stands between line breaks that are not its own

    @property
    def no_key(self) -> str:
        """Characters that no key holds."""
        return _NO_NAME + self.keyed[0][0]

    @property
    def no_text(self) -> tuple[str, ...]:
        """What no value can hold in all places."""
        return (self.value_end, self.end, *([self.key] if self.on_lines else []))


QWEN_TAGS = Tags(
    open=HERMES_OPEN,
    name=FUNCTION_OPEN,
    named=">",
    key=PARAMETER_OPEN,
    keyed=(">",),
    value_end=PARAMETER_CLOSE,
    end=FUNCTION_CLOSE,
    close=HERMES_CLOSE,
    on_lines=True,
)
GLM_TAGS = Tags(
    open=HERMES_OPEN,
    key=ARG_KEY_OPEN,
    keyed=(ARG_KEY_CLOSE, ARG_VALUE_OPEN),
    value_end=ARG_VALUE_CLOSE,
    end=HERMES_CLOSE,
)
MINIMAX_TAGS = Tags(
    open=MINIMAX_OPEN,
    name='<invoke name="',
    named='">',
    key='<parameter name="',
    keyed=('">',),
    value_end=PARAMETER_CLOSE,
    end="</invoke>",
    close=MINIMAX_CLOSE,
)


@dataclass(frozen=True, slots=True)
class Behind:
    """What comes behind a name or a value: the next key, the end, or the end of the text."""

    key: str | None = None
    is_cut: bool = False


def name_of(reader: Reader, tags: Tags) -> Reading[str]:
    """Read a function's name, and the tag behind it if there is one."""
    name = yield from up_to(reader, _NO_NAME + tags.named[:1])
    yield from literal(reader, tags.named)
    return name.strip()


def behind_name(reader: Reader, tags: Tags) -> Reading[Behind]:
    """Read what follows a name or the end of a value."""
    yield from spaces(reader)
    ends = (tags.end, tags.close) if tags.close else (tags.end,)
    if (yield from one_of(reader, (tags.key, *ends))) in ends:
        return Behind()
    return Behind((yield from _key(reader, tags)))


def arguments(
    reader: Reader,
    tags: Tags,
    parameters: Mapping[str, Any],
    behind: Behind,
    say: Callable[[str], None],
) -> Reading[None]:
    """Read from behind the first key to the end of the function."""
    say("{")
    separator = ""
    while (key := behind.key) is not None:
        begun = f'{separator}"{escaped(key)}": '
        kinds = kinds_of_argument(parameters, key)
        if kinds == ONLY_TEXT:
            say(f'{begun}"')
            behind = yield from _value(reader, tags, lambda text: say(escaped(text)))
            rest = '"'
        else:
            read: list[str] = []
            behind = yield from _value(reader, tags, read.append)
            rest = begun + as_json("".join(read), kinds)
        if behind.is_cut:
            return
        say(rest)
        separator = ", "
    say("}")


def _key(reader: Reader, tags: Tags) -> Reading[str]:
    key = yield from up_to(reader, tags.no_key)
    yield from literal(reader, tags.keyed[0])
    for mark in tags.keyed[1:]:
        yield from spaces(reader)
        yield from literal(reader, mark)
    return key


def _value(reader: Reader, tags: Tags, say: Callable[[str], None]) -> Reading[Behind]:
    """Read a value: what comes behind it."""
    if tags.on_lines and (yield from reader.peek()) == "\n":
        reader.advance()
    reader.release()
    while char := (yield from reader.peek()):
        if char in "\n<":
            behind = yield from attempt(reader, _ending(reader, tags))
            if behind is not None:
                reader.release()
                return behind
            reader.advance()
        else:
            reader.advance_over(_RUN)
        say(reader.release())
    return Behind(is_cut=True)


def _ending(reader: Reader, tags: Tags) -> Reading[Behind]:
    """Read the end of a value, from its line break on; a text that is cut in it is cut."""
    try:
        marks = [tags.value_end, tags.end]
        if tags.on_lines and (yield from reader.peek()) == "\n":
            reader.advance()
            marks.append(tags.key)
        mark = yield from one_of(reader, marks)
        if mark == tags.value_end:
            return (yield from behind_name(reader, tags))
        if mark == tags.key:
            return Behind((yield from _key(reader, tags)))
        return (yield from _left_open(reader, tags))
    except Mismatch:
        if reader.is_over:
            return Behind(is_cut=True)
        raise


def _left_open(reader: Reader, tags: Tags) -> Reading[Behind]:
    """The end of a function whose last value was not closed: nothing but calls may follow."""
    yield from spaces(reader)
    if (yield from reader.peek()):
        marks = filter(None, (tags.name, tags.close, tags.open))
        mark = yield from one_of(reader, marks)
        reader.go_back(mark)
    return Behind()
