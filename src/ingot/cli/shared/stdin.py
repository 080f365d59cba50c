"""What was piped into a command: text for its prompt."""

import os
import stat
import sys
from io import UnsupportedOperation
from threading import Timer

from ingot.cli.shared.output import notice
from ingot.errors import ConfigError

_PATIENCE = 2.0  # seconds until a wait for stdin is explained


def read_stdin() -> str:
    """All of stdin, as text. A pipe that stays open, as some programs leave it, is explained."""
    waiting = "waiting for the end of the text on stdin (if there is none: < /dev/null)"
    explain = Timer(_PATIENCE, notice, [waiting])
    explain.daemon = True
    explain.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    finally:
        explain.cancel()


def piped_text() -> str:
    """What a pipe or a file gives as stdin; empty if stdin is a terminal or anything else.

    A service manager may leave a socket or a device there, from which nothing ever comes.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, UnsupportedOperation, ValueError):
        return "" if sys.stdin.closed else read_stdin()
    return read_stdin() if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else ""


def prompt_with_stdin(prompt: str | None) -> str | None:
    """The prompt, and after it what was piped in; `-` stands for stdin. None: there is neither."""
    if prompt == "-":
        text = read_stdin()
    else:
        given = (
            ""
            if prompt is None
            else prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        )
        parts = [part for part in (given, piped_text()) if part.strip()]
        if not parts and prompt is None:
            return None
        text = "\n\n".join(parts)
    if not text.strip():
        raise ConfigError("the prompt is empty")
    return text
