"""The terminal through rich: colours where they are seen, whole lines where they are piped."""

import sys

from rich.console import Console

_PIPED_WIDTH = 1000  # nothing is cut or wrapped on its way into a file or a program


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is (no markup); no colour without a terminal or with
    NO_COLOR set.
    """
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _PIPED_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )
