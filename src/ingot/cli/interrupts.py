"""Ctrl-C in a command: the first tells it to tidy up and go, the second ends the process.

The second may come anywhere: in the tidying up, in the interpreter's own end. As an exception it
would end in a traceback there. As the end of the process it is quiet, and its status is the same.
"""

import atexit
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130  # the exit status after Ctrl-C


@contextmanager
def two_interrupts() -> Iterator[None]:
    """Make the first Ctrl-C KeyboardInterrupt; a second one, and any after this, ends the process.

    The last thing that the interpreter does at exit is to forget this, so there Ctrl-C is ignored.
    """
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


@contextmanager
def any_interrupts() -> Iterator[None]:
    """Make every Ctrl-C KeyboardInterrupt, for a command that goes on after it."""
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
