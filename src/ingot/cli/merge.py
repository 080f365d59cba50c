"""`ingot merge`: the parts of a model in one file."""

from pathlib import Path
from typing import Annotated

import typer

from ingot.cli.shared.copies import write_copy
from ingot.cli.shared.find_model import locate
from ingot.gguf import GgufLoader, GgufWriter
from ingot.gguf.copying import copy_keys, copy_tensor


def command(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Any part of a split model; the others are found.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="The file to be written.")],
) -> None:
    """Merge the parts of a model into one file and print its path.

    Example: ingot merge model-00001-of-00003.gguf model.gguf
    """
    with GgufLoader(locate(source)) as loader:
        writer = GgufWriter(output, alignment=loader.alignment)
        copy_keys(loader, writer)
        for tensor in loader.tensors.values():
            copy_tensor(tensor, writer)
        paths = write_copy(loader, writer)
    print(paths[0])
