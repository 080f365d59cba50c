"""Which model a command works on: the one that was named, or the default one.

In comes what followed `-m`, out goes a path. A model that has to be fetched shows its progress.
"""

from pathlib import Path
from typing import Annotated

import typer

from ingot import store
from ingot.cli.progress import DrawnProgress
from ingot.cli.text import notice

MODEL_HELP = (
    "A GGUF file, or the name of a model in the cache; default: SmolLM2 (see `ingot pull`)."
)

ModelOption = Annotated[str | None, typer.Option("-m", "--model", metavar="MODEL", help=MODEL_HELP)]


def locate(name: str | None) -> Path:
    """The file of the model; without a name, that of the default model, with a notice."""
    if name is None:
        name = store.DEFAULT
        notice(f"no model was named: using the default one, {store.DEFAULT_MODEL.file}")
    if path := store.find(name):
        return path
    with DrawnProgress() as progress:
        return store.resolve(name, progress)
