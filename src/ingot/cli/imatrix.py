"""`ingot imatrix`: how much the inputs of each tensor matter, measured on a text."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ingot.bar import Bar
from ingot.cli.shared.chunks import split_chunks
from ingot.cli.shared.find_model import ModelOption, locate
from ingot.cli.shared.model_options import DeviceOption, ThreadsOption
from ingot.cli.shared.output import notice
from ingot.config import config
from ingot.convert import open_model
from ingot.engine.model.input_sums import sum_inputs
from ingot.quantize.imatrix import write_imatrix
from ingot.tokenizer import Tokenizer


def command(
    text: Annotated[Path, typer.Argument(metavar="TEXTFILE", help="A UTF-8 text file.")],
    *,
    model: ModelOption = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The file to be written.")
    ] = Path("imatrix.gguf"),
    context: Annotated[
        int, typer.Option("-c", "--context", min=4, help="Chunk length in tokens.")
    ] = 512,
    chunks: Annotated[
        int | None, typer.Option("--chunks", min=1, help="At most so many. Default: all.")
    ] = None,
    threads: ThreadsOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Compute an importance matrix from a text and print the path of its file.

    Quantization errors count most for the inputs that are large on this text (ingot quantize
    --imatrix FILE). The file has the format of llama.cpp. Some hundred chunks of text like that
    which the model will read are enough.

    Example: ingot imatrix -m model-F16.gguf text.txt -o imatrix.gguf
    """
    content = text.read_bytes().removesuffix(b"\n")
    with open_model(locate(model)) as file, Bar("reading", "chunks") as bar:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        ids = tokenizer.encode(content)
        found = split_chunks(ids, tokenizer, context, most=chunks)
        arrays = [np.array(chunk, np.int32) for chunk in found]
        sums = sum_inputs(
            file, arrays, threads=threads or config().threads, device=device, progress=bar
        )
    unseen = sum(int((counted.counts == 0).sum()) for counted in sums.values())
    if unseen:
        notice(f"{unseen} matrices of experts saw no token; a longer text would reach more of them")
    write_imatrix(output, sums, dataset=text.name, chunks=len(found), chunk_size=context)
    print(output)
