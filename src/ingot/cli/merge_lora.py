"""`ingot merge-lora`: a model with adapters merged into its weights."""

from pathlib import Path
from typing import Annotated

import typer

from ingot.adapters import combined, open_adapter
from ingot.adapters.merge import merge_adapter
from ingot.bar import DownloadBar
from ingot.cli.shared.adapter_flags import parse_scaled
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.output import notice, size
from ingot.convert import open_model
from ingot.errors import QuantError
from ingot.gguf import GgmlType
from ingot.models import build_graph


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The base model.")],
    adapters: Annotated[
        list[str],
        typer.Argument(
            metavar="ADAPTER[:SCALE]...", help="LoRA adapters: GGUF files or folders of PEFT."
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The new file.")],
    type: Annotated[
        str | None,
        typer.Option(
            "--type",
            help="Type of the matrices that change: f32, f16, q8_0, q4_k, ... [the one they have]",
        ),
    ] = None,
) -> None:
    """Merge LoRA adapters into a model, write a new file and print its path.

    The file runs at the speed of the base model, everywhere. Quantized matrices that change are
    quantized again; --type f16 avoids that loss.

    Example: ingot merge-lora model.gguf adapter.gguf -o merged.gguf
    """
    kind = None if type is None else _type(type)
    with open_model(locate(model)) as base:
        graph = build_graph(base)
        parts = [
            (open_adapter(path, base, graph), scale) for path, scale in map(parse_scaled, adapters)
        ]
        merged = combined(parts)
        notice(f"{len(merged.tensors)} of {len(base.tensors)} tensors change")
        with DownloadBar() as bar:
            (path,) = merge_adapter(
                base,
                merged,
                output,
                kind=kind,
                progress=lambda done, total: bar(f"writing {output.name}", done, total),
            )
    notice(f"written: {size(path.stat().st_size)}")
    print(path)


def _type(name: str) -> GgmlType:
    try:
        return GgmlType[name.upper()]
    except KeyError:
        raise QuantError(
            f"there is no tensor type {name!r}; use f32, f16, q8_0, q4_k, ..."
        ) from None
