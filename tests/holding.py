"""Keeps an engine from its next step: what is asked for meanwhile comes all at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ingot import LLM

PATIENCE = 300  # seconds, on a machine that does other things


@contextmanager
def held(llm: LLM) -> Iterator[None]:
    """Hold the thread that runs the steps between two of them."""
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        go_on.wait(PATIENCE)

    caller = threading.Thread(target=llm.engine._loop.call, args=(hold,))
    caller.start()
    began.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        caller.join()
