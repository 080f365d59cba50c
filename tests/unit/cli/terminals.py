"""A command at a terminal of its own: keys go in, and what the terminal shows comes out."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from command_runs import INGOT, PATIENCE

# Bold, which no answer can be: its control characters are escaped.
PROMPT, MORE = b"\x1b[1m> ", b"\x1b[1m. "
CTRL_C, CTRL_D, ENTER = b"\x03", b"\x04", b"\r"


def shown_to_end(leader: int) -> str:
    """All that is shown on a terminal; whoever else has it open has closed it, or will."""
    shown = b""
    with suppress(OSError):  # the other end is closed, and everything is read
        while piece := os.read(leader, 4096):
            shown += piece
    os.close(leader)
    return shown.decode()


class AtTerminal:
    """A process whose controlling terminal is ours to type at."""

    def __init__(self, *arguments: object, **environment: str) -> None:
        self._leader, follower = pty.openpty()
        name = os.ttyname(follower)
        # The first terminal that a process without one opens controls it: Ctrl-C is a signal.
        script = 'exec "$@" <"$0" >"$0" 2>"$0"'
        command = ["sh", "-c", script, name, str(INGOT), *map(str, arguments)]
        variables = os.environ | environment
        self.process = subprocess.Popen(command, env=variables, start_new_session=True)
        os.set_blocking(self._leader, False)
        self._follower = follower
        self._unseen = b""

    def press(self, text: str | bytes) -> None:
        """Press keys."""
        os.write(self._leader, text.encode() if isinstance(text, str) else text)

    def enter(self, line: str) -> None:
        """Write a line at the prompt."""
        self.wait_for(PROMPT)
        self.press(line.encode() + ENTER)

    def interrupt_prompt(self, wanted: str) -> None:
        """Press Ctrl-C until this is shown: readline misses one just before it begins to wait."""
        deadline = time.monotonic() + PATIENCE
        while wanted.encode() not in self._unseen and time.monotonic() < deadline:
            self.press(CTRL_C)
            while wanted.encode() not in self._unseen and self._read(10.0):
                pass
        self.wait_for(wanted)

    def wait_for(self, wanted: bytes | str) -> str:
        """Read until this is shown: what was shown before it, since the last time."""
        wanted = wanted.encode() if isinstance(wanted, str) else wanted
        self._read_until(lambda: wanted in self._unseen)
        before, _, self._unseen = self._unseen.partition(wanted)
        return before.decode(errors="replace")

    def wait_for_more(self, count: int) -> str:
        """Read until so many bytes more are shown: the whole characters of what is shown."""
        self._read_until(lambda: len(self._unseen) >= count)
        shown, self._unseen = self._unseen, b""
        return shown.decode(errors="ignore")

    def leave(self) -> tuple[int, str]:
        """Wait for the end: the exit status, and what was shown at last."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.wait(timeout=1), self._unseen.decode(errors="replace")

    def _read_until(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline, f"only this was shown: {self._unseen!r}"
            assert self._read(1.0) or self.process.poll() is None, f"it ended: {self._unseen!r}"

    def _read(self, seconds: float) -> bool:
        if not select.select([self._leader], [], [], seconds)[0]:
            return False
        self._unseen += os.read(self._leader, 65536)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._leader)
        os.close(self._follower)
