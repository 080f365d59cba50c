"""Stream an answer to stdout, with a progress bar on stderr while a long prompt is read."""

import sys
import time

from ingot.bar import Bar
from ingot.cli.shared.output import printable
from ingot.engine import Request

_LONG_PROMPT = 1024  # tokens; shorter prompts are read too fast for a bar to be of use


class PromptBar(Bar):
    """Shows how much of a long prompt has been read."""

    def __init__(self) -> None:
        super().__init__("reading the prompt", "tokens")

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total`."""
        if total >= _LONG_PROMPT:
            super().__call__(done, total)


def read_answer(answer: Request, bar: Bar) -> tuple[float | None, bool]:
    """Wait for the text: the time of the first piece, and whether Ctrl-C stopped it."""
    first, interrupted = None, False
    try:
        for _ in answer:
            first = first or time.perf_counter()
            bar.clear()
    except KeyboardInterrupt:
        answer.cancel()
        interrupted = True
    bar.clear()
    return first, interrupted


def write_answer(answer: Request, bar: Bar) -> tuple[float | None, bool]:
    """Write the text as it arrives: the time of the first piece, and whether Ctrl-C stopped it."""
    first, interrupted = None, False
    on_terminal = sys.stdout.isatty()
    try:
        for piece in answer:
            if first is None:
                first = time.perf_counter()
                bar.clear()
            sys.stdout.write(printable(piece, keep="\n\t") if on_terminal else piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        answer.cancel()
        interrupted = True
    bar.clear()
    print(flush=True)
    return first, interrupted
