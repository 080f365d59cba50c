"""`ingot remove`: remove a model from the disk."""

from typing import Annotated

import typer

from ingot import store
from ingot.cli.shared.completion import complete_model
from ingot.cli.shared.output import notice, size


def command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Names, as `ingot list` shows them.",
            autocompletion=complete_model,
        ),
    ],
) -> None:
    """Remove models that Ingot has downloaded, also from the hub's cache.

    Files in the folders of other tools stay.
    """
    for name in names:
        freed = store.remove(name)
        notice(f"removed {name}: {size(freed)} freed")
