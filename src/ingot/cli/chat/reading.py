"""Read messages: from a terminal with line editing and history, or from a pipe.

A message is a line. A backslash at its end continues it on the next line; lines between two lines
of three double quotes are one message. This module does not interpret messages.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Self

from ingot.config import config
from ingot.files import open_regular, write_file

_PROMPT, _MORE = "> ", ". "
_FENCE = '"""'
_HISTORY_LINES, _HISTORY_BYTES = 1000, 16 << 20

ReadLine = Callable[[str], str]  # shows a prompt, returns a line; EOFError at the end


class Terminal:
    """Lines typed in a terminal, with editing and history if `readline` is available."""

    def __init__(self, history: Path) -> None:
        """`history` is the file with the lines of earlier chats."""
        self._shows = sys.stdout.isatty()
        self._begin = self._end = ""
        self._history = None if config().dumb_terminal else _history(history)
        if self._history is not None and config().styles:
            self._begin, self._end = (
                "\001\033[1m\002",
                "\001\033[0m\002",
            )  # bold; readline counts no width for it

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
        if self._history is not None:
            with suppress(OSError):  # the history is a convenience
                self._history.save()


class _History:
    """The lines of this chat and of earlier ones."""

    def __init__(self, path: Path, readline: ModuleType) -> None:
        self._path = path
        self._readline = readline
        with suppress(OSError):
            for line in _read_lines(path):
                readline.add_history(line)
        self._known = readline.get_current_history_length()

    def save(self) -> None:
        """Append this chat's lines to the file as it is now; other chats may have written to it."""
        end = self._readline.get_current_history_length()
        new = [self._readline.get_history_item(at + 1) for at in range(self._known, end)]
        lines = [*_read_lines(self._path), *new][-_HISTORY_LINES:]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{line}\n" for line in lines)
        write_file(self._path, [text.encode(errors="replace")], mode=0o600)


def _history(path: Path) -> _History | None:
    """The history, or None without `readline`; importing it turns line editing on."""
    try:
        import readline  # noqa: PLC0415 (missing on some systems, and only for terminals)
    except ImportError:
        return None
    return _History(path, readline)


def _read_lines(path: Path) -> list[str]:
    try:
        with open_regular(path) as file:
            text = file.read(_HISTORY_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-_HISTORY_LINES:]


def read_piped_line(prompt: str) -> str:  # noqa: ARG001 (nobody sees it)
    """The next line of piped stdin."""
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace").rstrip("\r\n")


def read_message(read: ReadLine) -> str:
    """The next message. Raises EOFError at the end of input; a message cut off there counts."""
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
