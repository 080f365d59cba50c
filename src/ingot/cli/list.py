"""`ingot list`: the models on this machine."""

from typing import Annotated

import typer

from ingot import convert, store
from ingot.cli.shared.output import notice, printable, size, write_columns, write_json
from ingot.errors import IngotError
from ingot.gguf import GgufLoader
from ingot.model_summary import architecture, quantization


def command(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models on this machine with size, architecture and quantization.

    Models that the hub's tools, ollama, LM Studio or llama.cpp have downloaded are listed, too.
    Each can be used by the name that is shown.
    """
    models = [(model, *_describe(model)) for model in convert.list_models()]
    if json:
        write_json(
            [
                {
                    "name": model.name,
                    "path": str(model.path),
                    "size": model.size,
                    "source": model.source,
                    "architecture": kind,
                    "quantization": quantized,
                    "error": error,
                }
                for model, kind, quantized, error in models
            ]
        )
        return
    if not models:
        notice(
            f"no models in {store.models_folder()}; `ingot pull` downloads the default one, "
            "`ingot search` finds others"
        )
        return
    rows = [
        (
            printable(model.name),
            size(model.size),
            printable(kind or "-"),
            quantized or "unreadable",
            model.source,
        )
        for model, kind, quantized, _ in models
    ]
    heading = ("NAME", "SIZE", "ARCHITECTURE", "QUANTIZATION", "SOURCE")
    write_columns([heading, *rows], right=(1,))
    for *_, error in models:
        if error:
            notice(f"unreadable: {error}")


def _describe(model: store.StoredModel) -> tuple[str | None, str | None, str | None]:
    if model.path.is_dir():
        kind, type = convert.checkpoint_summary(model.path) or (None, None)
        return kind, type, None
    try:
        with GgufLoader(model.path) as loader:
            return architecture(loader), quantization(loader), None
    except (IngotError, OSError) as error:
        return None, None, str(error)
