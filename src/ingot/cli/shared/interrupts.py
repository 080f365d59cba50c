"""Ctrl-C in a command: the first asks it to clean up and exit, the second ends the process.

The second may arrive at any point: during cleanup, or while the interpreter shuts down. An
exception there would print a traceback, so the process exits at once, with the same status.
"""

import atexit
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130  # the exit status after Ctrl-C


@contextmanager
def exit_on_second_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C raise KeyboardInterrupt; any later one ends the process.

    At exit the interpreter removes signal handlers last of all; Ctrl-C is ignored from then on.
    """
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def cancel_on_interrupt(cancel: Callable[[], object]) -> Iterator[None]:
    """Let the first Ctrl-C call a function, for an event loop; any later one ends the process.

    An exception would arise inside of whatever the loop does just then.
    """

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, _leave)
        cancel()

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def survive_interrupts() -> Iterator[None]:
    """Let every Ctrl-C raise KeyboardInterrupt, for a command that continues after it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(*_: object) -> NoReturn:
    signal.signal(signal.SIGINT, _leave)
    raise KeyboardInterrupt


def _leave(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)
