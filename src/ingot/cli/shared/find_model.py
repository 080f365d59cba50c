"""Which file a command works on: the model given with `-m`, or the default one.

The value of `-m` comes in, a path goes out; `ingot.store` knows what the value may be. A model that
has to be downloaded shows its progress on stderr.
"""

from pathlib import Path
from typing import Annotated

import typer

from ingot import store
from ingot.bar import DownloadBar
from ingot.cli.shared.completion import complete_model
from ingot.cli.shared.output import notice, size
from ingot.convert import locate_quantized

MODEL_HELP = (
    "A GGUF file, a folder with safetensors[:QUANT], hf:OWNER/REPO[:QUANT|/FILE], https://..., "
    "ollama:NAME[:TAG], or a name of `ingot list`. Default: SmolLM2 (see `ingot pull`)."
)

ModelOption = Annotated[
    str | None,
    typer.Option("-m", "--model", metavar="MODEL", help=MODEL_HELP, autocompletion=complete_model),
]


def download_bar() -> DownloadBar:
    """A `store.Progress` for a `with` block: a bar on a terminal, otherwise one line per stage."""
    return DownloadBar(lambda stage, total: notice(f"{stage} ({size(total)})" if total else stage))


def locate(name: str | None) -> Path:
    """The model's file; without a name, the default model's file, and a notice that says so."""
    if name is None:
        name = store.DEFAULT
        notice(f"no model given: using the default, {store.default_model.DEFAULT_MODEL.file}")
    with download_bar() as progress:
        return locate_quantized(name, progress) or store.resolve(name, progress)
