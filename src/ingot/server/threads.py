"""Runs slow functions in threads, so that the event loop continues.

It is `asyncio.to_thread` with a typed error: a process at its thread limit raises
`ThreadLimitError`, which clients see as a 503.
"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import ParamSpec, TypeVar

from ingot.errors import ThreadLimitError

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread of the event loop's pool and return its result."""
    context = contextvars.copy_context()
    submitting = threading.Lock()
    refused = False

    def call() -> T:
        # A pool that cannot start a thread has queued the call already. A thread that finds it
        # there must not run it, because nobody would see its result or undo its effects.
        with submitting:
            if refused:
                raise ThreadLimitError("the call was refused")
        return context.run(function, *args, **kwargs)

    with submitting:
        try:
            result = asyncio.get_running_loop().run_in_executor(None, call)
        except RuntimeError as error:
            refused = True
            if "start new thread" not in str(error):
                raise
            raise ThreadLimitError(
                "the system cannot start another thread for this process; try again, or raise its "
                "limit (ulimit -u, TasksMax, --pids-limit)"
            ) from error
    return await result


async def iterate_in_threads(values: Iterator[T]) -> AsyncIterator[T]:
    """The values of an iterator, each of which is made in a thread."""
    end = object()
    while (value := await run_in_thread(next, values, end)) is not end:
        yield value  # type: ignore[misc]  # it is not the end
