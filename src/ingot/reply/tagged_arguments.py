"""Tool call arguments between tags, one by one, with strings that are not quoted.

    <function=write>                       write
    <parameter=path>                       <arg_key>path</arg_key>
    notes.txt                              <arg_value>notes.txt</arg_value>
    </parameter>                           <arg_key>lines</arg_key>
    <parameter=lines>                      <arg_value>3</arg_value>
    3
    </parameter>
    </function>

In: a reader after the name of a call. Out: the arguments as JSON, piece by piece: strings as they
come, other values when they are complete. A string may contain the tags, too, so a value ends only
if its closing tag is followed by a tag that may come next. MiniMax's tags are like the left ones,
but with names in quotes and values that are not on separate lines. Models leave tags out: the tag
of the next parameter on a new line also ends a value, and so does the end of the function.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ingot.reply.argument_values import ONLY_TEXT, as_json, escaped, kinds_of_argument
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

_NO_NAME = "<>\n"
_RUN = re.compile(r"[^<\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The tags around the parts of a call."""

    open: str  # before the calls
    key: str
    keyed: tuple[str, ...]  # between a key and its value
    value_end: str
    end: str  # after the last argument
    close: str = ""  # after the calls; empty if `end` closes them
    name: str = ""  # before the name of the function
    named: str = ""
    on_lines: bool = False  # whether line breaks that are not part of it surround a value

    @property
    def no_key(self) -> str:
        """Characters that cannot be in a key."""
        return _NO_NAME + self.keyed[0][0]

    @property
    def no_text(self) -> tuple[str, ...]:
        """Tags that cannot be everywhere in a value."""
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
class Following:
    """What follows a name or a value: the next key, or else the end of the call or of the text."""

    key: str | None = None
    is_cut: bool = False


def name_of(reader: Reader, tags: Tags) -> Reading[str]:
    """Read the name of a function, and the tag after it if there is one."""
    name = yield from up_to(reader, _NO_NAME + tags.named[:1])
    yield from literal(reader, tags.named)
    return name.strip()


def after_name(reader: Reader, tags: Tags) -> Reading[Following]:
    """Read what follows a name or the closing tag of a value."""
    yield from spaces(reader)
    ends = (tags.end, tags.close) if tags.close else (tags.end,)
    if (yield from one_of(reader, (tags.key, *ends))) in ends:
        return Following()
    return Following((yield from _key(reader, tags)))


def arguments(
    reader: Reader,
    tags: Tags,
    parameters: Mapping[str, object],
    following: Following,
    emit: Callable[[str], None],
) -> Reading[bool]:
    """Read from after the first key to the end of the function; emit JSON.

    Returns whether the arguments are complete.
    """
    emit("{")
    separator = ""
    while (key := following.key) is not None:
        begun = f'{separator}"{escaped(key)}": '
        kinds = kinds_of_argument(parameters, key)
        if kinds == ONLY_TEXT:
            emit(f'{begun}"')
            following = yield from _value(reader, tags, lambda text: emit(escaped(text)))
            rest = '"'
        else:
            read: list[str] = []
            following = yield from _value(reader, tags, read.append)
            rest = begun + as_json("".join(read), kinds)
        if following.is_cut:
            return False
        emit(rest)
        separator = ", "
    emit("}")
    return True


def _key(reader: Reader, tags: Tags) -> Reading[str]:
    key = yield from up_to(reader, tags.no_key)
    yield from literal(reader, tags.keyed[0])
    for mark in tags.keyed[1:]:
        yield from spaces(reader)
        yield from literal(reader, mark)
    return key


def _value(reader: Reader, tags: Tags, emit: Callable[[str], None]) -> Reading[Following]:
    """Read a value and return what follows it."""
    if tags.on_lines and (yield from reader.peek()) == "\n":
        reader.advance()
    reader.release()
    while char := (yield from reader.peek()):
        if char in "\n<":
            following = yield from attempt(reader, _ending(reader, tags))
            if following is not None:
                reader.release()
                return following
            reader.advance()
        else:
            reader.advance_over(_RUN)
        emit(reader.release())
    return Following(is_cut=True)


def _ending(reader: Reader, tags: Tags) -> Reading[Following]:
    """Read the end of a value, from its line break on; the text may be cut off in it."""
    try:
        marks = [tags.value_end, tags.end]
        if tags.on_lines and (yield from reader.peek()) == "\n":
            reader.advance()
            marks.append(tags.key)
        mark = yield from one_of(reader, marks)
        if mark == tags.value_end:
            return (yield from after_name(reader, tags))
        if mark == tags.key:
            return Following((yield from _key(reader, tags)))
        return (yield from _left_open(reader, tags))
    except Mismatch:
        if reader.is_over:
            return Following(is_cut=True)
        raise


def _left_open(reader: Reader, tags: Tags) -> Reading[Following]:
    """Check the end of a function whose last value has no closing tag: only calls may follow."""
    yield from spaces(reader)
    if (yield from reader.peek()):
        marks = filter(None, (tags.name, tags.close, tags.open))
        mark = yield from one_of(reader, marks)
        reader.go_back(mark)
    return Following()
