"""`ingot convert`: a checkpoint of `transformers` as a GGUF file."""

from pathlib import Path
from typing import Annotated

import typer

from ingot import store
from ingot.bar import DownloadBar
from ingot.cli.shared.find_model import download_bar, locate
from ingot.cli.shared.output import notice, quantity, size
from ingot.errors import AdapterError, ConfigError
from ingot.gguf import GgmlType


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
    lora: Annotated[
        bool,
        typer.Option("--lora", help="The folder is a LoRA adapter of PEFT: write an adapter file."),
    ] = False,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="MODEL",
            help="With --lora: the model that the adapter is for. Default: the folder that the "
            "adapter names.",
        ),
    ] = None,
) -> None:
    """Convert a checkpoint of transformers (safetensors) to a GGUF file and print its path.

    Tokenizer and chat template come along. Weights that are quantized with FP8, AWQ or GPTQ are
    decoded; MXFP4 weights stay as they are. The file appears when it is complete.

    Example: ingot convert hf:Qwen/Qwen3-0.6B --type q8_0
    """
    if lora:
        _convert_adapter(Path(source), base, output, type)
        return
    if base is not None:
        raise ConfigError("--base is the model of an adapter; it needs --lora")
    from ingot.convert.conversion import plan  # noqa: PLC0415 (not before the arguments are checked)

    with download_bar() as progress:
        folder = store.checkpoint(source, progress)
    conversion = plan(folder, type)
    path = output or Path(f"{store.checkpoint_name(folder)}-{conversion.mix.name}.gguf")
    notice(
        f"{conversion.model_class}: {quantity(conversion.parameters)} weights, "
        f"{len(conversion.tensors)} tensors as {conversion.mix.name}"
    )
    with DownloadBar() as bar:
        conversion.write(path, lambda done, total: bar(f"writing {path.name}", done, total))
    notice(f"written: {size(path.stat().st_size)}")
    print(path)


def _convert_adapter(folder: Path, base: str | None, output: Path | None, type: str | None) -> None:
    """Write the adapter of a folder as a file."""
    from ingot.adapters import open_adapter  # noqa: PLC0415 (as above)
    from ingot.adapters.gguf_adapter import write_gguf_adapter  # noqa: PLC0415
    from ingot.adapters.peft import base_of  # noqa: PLC0415
    from ingot.convert import open_model  # noqa: PLC0415
    from ingot.models import build_graph  # noqa: PLC0415

    known = {kind.name.lower(): kind for kind in (GgmlType.F32, GgmlType.F16, GgmlType.BF16)}
    if type is not None and type.lower() not in known:
        raise ConfigError(f"--type is {type!r}; that of an adapter is f32, f16 or bf16")
    if not folder.is_dir():
        raise AdapterError(f"{folder} is not a folder; give one that PEFT saved")
    place = locate(base) if base is not None else base_of(folder)
    with open_model(place) as model:
        adapter = open_adapter(folder, model, build_graph(model))
        architecture = model.metadata.string("general.architecture")
    name = folder.resolve().name
    path = output or Path(f"{name}-lora.gguf")
    kind = None if type is None else known[type.lower()]
    write_gguf_adapter(adapter, architecture, path, name=name, kind=kind)
    notice(f"{len(adapter.tensors)} matrices, written: {size(path.stat().st_size)}")
    print(path)
