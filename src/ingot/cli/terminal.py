"""The terminal through rich: colours where they are seen, whole lines where they are piped."""

import sys

from rich.console import Console

from ingot.config import config

_PIPED_WIDTH = 1000  # nothing is cut or wrapped on its way into a file or a program


def console() -> Console:
    """A console for stdout that prints text as it is (no markup).

    It has colours and bold text only on a terminal, and if the environment allows them.
    """
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _PIPED_WIDTH,
        color_system="auto" if config().styles else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
