"""`ingot split`: a model in several files."""

from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.shared.copies import write_copy
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.sizes import parse_size
from ingot.errors import ConfigError
from ingot.gguf import GgufLoader, GgufWriter
from ingot.gguf.copying import copy_keys, copy_tensor


def command(
    source: Annotated[str, typer.Argument(metavar="IN", help="A GGUF file.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.gguf", help="The parts are OUT-00001-of-00003.gguf, ...")
    ],
    *,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="Of a part's tensors: 300M, 2G."),
    ] = None,
    max_tensors: Annotated[
        int | None, typer.Option("--max-tensors", min=1, help="Tensors of a part. Default: 128.")
    ] = None,
) -> None:
    """Split a model into several files and print the path of the first.

    Every command takes the first part as the model; llama.cpp reads the same files.

    Example: ingot split model.gguf parts.gguf --max-size 2G
    """
    if max_size is not None and max_tensors is not None:
        raise ConfigError("--max-size and --max-tensors exclude each other")
    limit = None if max_size is None else parse_size("--max-size", max_size)
    count = 128 if max_size is None and max_tensors is None else max_tensors
    with GgufLoader(locate(source)) as loader:
        writer = GgufWriter(output, alignment=loader.alignment, max_bytes=limit, max_tensors=count)
        copy_keys(loader, writer)
        for tensor in loader.tensors.values():
            copy_tensor(tensor, writer)
        paths = write_copy(loader, writer)
    print(paths[0])
