"""`ingot convert`: a checkpoint of `transformers` as a GGUF file."""

from pathlib import Path
from typing import Annotated

import typer

from ingot import store
from ingot.bar import DownloadBar
from ingot.cli.shared.find_model import download_bar
from ingot.cli.shared.output import notice, quantity, size


def command(
    source: Annotated[
        str,
        typer.Argument(metavar="FOLDER|hf:OWNER/REPO", help="A folder with safetensors files."),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Default: NAME-TYPE.gguf, here."),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option(
            "--type",
            help="f32, f16, bf16, q8_0, q4_k_m, ... Default: the float type of the checkpoint.",
        ),
    ] = None,
) -> None:
    """Convert a checkpoint of transformers (safetensors) to a GGUF file and print its path.

    Tokenizer and chat template come along. Weights that are quantized with FP8, AWQ or GPTQ are
    decoded; MXFP4 weights stay as they are. The file appears when it is complete.

    Example: ingot convert hf:Qwen/Qwen3-0.6B --type q8_0
    """
    from ingot.convert.conversion import plan  # noqa: PLC0415 (not before the arguments are checked)

    with download_bar() as progress:
        folder = store.checkpoint(source, progress)
    conversion = plan(folder, type)
    name = source.rpartition("/")[2] if store.is_remote(source) else folder.resolve().name
    path = output or Path(f"{name}-{conversion.mix.name}.gguf")
    notice(
        f"{conversion.model_class}: {quantity(conversion.parameters)} weights, "
        f"{len(conversion.tensors)} tensors as {conversion.mix.name}"
    )
    with DownloadBar() as bar:
        conversion.write(path, lambda done, total: bar(f"writing {path.name}", done, total))
    notice(f"written: {size(path.stat().st_size)}")
    print(path)
