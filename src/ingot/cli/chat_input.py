"""Messages from a person at a terminal, or from a pipe.

A message is a line; lines that end in a backslash go on in the next one, and lines between two
of three double quotes are one message. What a message says is not known here.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Self

_PROMPT, _MORE = "> ", ". "
_FENCE = '"""'
_HISTORY_LINES = 1000

ReadLine = Callable[[str], str]  # a prompt to show -> a line; EOFError at the end


class Terminal:
    """Lines that a person writes, with editing and a history where `readline` is there."""

    def __init__(self, history: Path) -> None:
        """`history` is the file that keeps the lines of earlier chats."""
        self._history = history
        self._shows = sys.stdout.isatty()
        self._begin = self._end = ""
        try:
            import readline  # noqa: PLC0415 (not everywhere, and only for terminals)
        except ImportError:
            self._save: Callable[[], None] | None = None
            return
        self._save = lambda: readline.write_history_file(self._history)
        self._begin, self._end = "\001\033[1m\002", "\001\033[0m\002"  # bold, of no width
        readline.set_history_length(_HISTORY_LINES)
        with suppress(OSError):
            readline.read_history_file(history)

    def __call__(self, prompt: str) -> str:
        """Read a line."""
        return input(f"{self._begin}{prompt}{self._end}" if self._shows else "")

    def __enter__(self) -> Self:
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._save:
            with suppress(OSError):  # a chat without a history is a chat
                self._history.parent.mkdir(parents=True, exist_ok=True)
                self._save()


def read_piped_line(prompt: str) -> str:  # noqa: ARG001 (nobody would see it)
    """The next line of stdin, which is no terminal."""
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace").rstrip("\r\n")


def read_message(read: ReadLine) -> str:
    """The next message, EOFError if there is none; the end within one ends it."""
    line = read(_PROMPT)
    lines = []
    with suppress(EOFError):
        if line.strip() == _FENCE:
            while (line := read(_MORE)).strip() != _FENCE:
                lines.append(line)
            return "\n".join(lines)
        while line.endswith("\\"):
            lines.append(line[:-1])
            line = read(_MORE)
        lines.append(line)
    return "\n".join(lines)
