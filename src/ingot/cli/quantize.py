"""`ingot quantize`: a smaller file of a model, or with --dry-run how small it would be."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ingot.bar import DownloadBar, StageBar
from ingot.cli.shared.chunks import split_chunks
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.model_options import ThreadsOption
from ingot.cli.shared.output import notice, size, write_columns
from ingot.cli.shared.sizes import parse_size
from ingot.config import config
from ingot.convert import open_model
from ingot.engine.model.fit_size import fit_size
from ingot.engine.model.input_sums import sum_inputs
from ingot.errors import ConfigError
from ingot.gguf import GgufLoader
from ingot.models import has_own_mix_rules
from ingot.quantize import Quantization, parse_override, plan
from ingot.quantize.imatrix import ImportanceMatrix, read_imatrix
from ingot.quantize.mixes import COPY, MIXES, Mix, mix_of
from ingot.tokenizer import Tokenizer

_CONTEXT = 256  # tokens of a chunk


def command(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A model, best F16, BF16 or F32; also a folder.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="The file to be written.")],
    type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help=f"{', '.join(MIXES)}, COPY.")
    ] = None,
    *,
    target_size: Annotated[
        str | None,
        typer.Option(
            "--target-size", metavar="SIZE", help="Choose the types for a file of 4.5GB, 300M."
        ),
    ] = None,
    target_bpw: Annotated[
        float | None,
        typer.Option(
            "--target-bpw", min=1.0, max=16.0, help="Choose the types for so many bits per weight."
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", metavar="TEXTFILE", help="What the choice is measured on; a UTF-8 text file."
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--context",
            min=4,
            help=f"Length of the text's chunks in tokens. Default: {_CONTEXT}.",
        ),
    ] = None,
    threads: ThreadsOption = None,
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor-type",
            metavar="REGEX=TYPE",
            help="The type of tensors whose name contains a match; may be repeated.",
        ),
    ] = None,
    imatrix: Annotated[
        Path | None,
        typer.Option(
            "--imatrix", metavar="FILE", help="An importance matrix, in a format of llama.cpp."
        ),
    ] = None,
    keep_split: Annotated[
        bool, typer.Option("--keep-split", help="Write as many files as the model has.")
    ] = False,
    allow_requantize: Annotated[
        bool,
        typer.Option("--allow-requantize", help="Also take tensors that are quantized already."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show types and sizes; write nothing.")
    ] = False,
) -> None:
    """Quantize a model: write a smaller file of it, and print its path.

    TYPE is one of llama.cpp's mixes, with the same types for the same tensors. Instead, with
    --target-size or --target-bpw, each tensor gets a type by how much it changes the predictions on
    a text. Norms, biases and routers stay as they are, and with COPY all tensors that --tensor-type
    does not name. The file appears when it is complete.

    \b
    Example: ingot quantize in.gguf out.gguf q4_k_m --tensor-type ffn_down=q6_k
    Example: ingot quantize in.gguf out.gguf --target-size 4.5GB --text text.txt
    """
    given = [type, target_size, target_bpw]
    if sum(value is not None for value in given) != 1:
        raise ConfigError("say one of TYPE, --target-size and --target-bpw")
    if type is None and (tensor_type or allow_requantize):
        raise ConfigError("--tensor-type and --allow-requantize go with a TYPE")
    if type is not None and (text is not None or context is not None):
        raise ConfigError("--text and --context go with --target-size or --target-bpw")
    overrides = [parse_override(override) for override in tensor_type or ()]
    mix = None if type is None else _mix(type)
    size_limit = None if target_size is None else parse_size("--target-size", target_size)
    path = locate(source)
    with open_model(path) as loader:
        known = None if imatrix is None else read_imatrix(imatrix)
        if mix is not None:
            planned = plan(
                loader,
                mix,
                overrides,
                imatrix=known,
                allow_requantize=allow_requantize,
                own_rules=has_own_mix_rules(loader.metadata.string("general.architecture", "")),
            )
        elif text is not None:
            length = context or _CONTEXT
            planned = _fitted(loader, text, known, size_limit, target_bpw, length, threads)
        else:
            raise ConfigError(
                "--target-size and --target-bpw need a text to measure on (--text FILE)"
            )
        if dry_run:
            _show(planned)
            return
        if any(file.path.resolve() == output.resolve() for file in loader.files):
            raise ConfigError(f"{output} is the model itself; choose another name for the result")
        with DownloadBar() as bar:
            paths = planned.write(
                output,
                lambda done, total: bar(f"writing {output.name}", done, total),
                keep_split=keep_split,
                threads=threads,
            )
        notice(
            f"{size(sum(t.nbytes for t in loader.tensors.values()))} -> {size(planned.size)}, "
            f"{_bits(planned):.2f} bits per weight"
        )
    print(paths[0])


def _mix(type: str) -> Mix:
    """The mix of a name; COPY keeps all types."""
    return COPY if type.upper() == COPY.name else mix_of(type)


def _fitted(
    loader: GgufLoader,
    text: Path,
    imatrix: ImportanceMatrix | None,
    target_size: int | None,
    target_bits: float | None,
    context: int,
    threads: int | None,
) -> Quantization:
    """Types by measurements on a text, which an importance matrix is computed from, too."""
    tokenizer = Tokenizer.from_metadata(loader.metadata)
    ids = tokenizer.encode(text.read_bytes().removesuffix(b"\n"))
    chunks = [np.array(chunk, np.int32) for chunk in split_chunks(ids, tokenizer, context)]
    count = threads or config().threads
    with StageBar() as bar:
        if imatrix is None:
            sums = sum_inputs(
                loader, chunks, threads=count, progress=lambda *done: bar("reading the text", *done)
            )
            imatrix = ImportanceMatrix.from_sums(text, sums, dataset=text.name, chunks=len(chunks))
        return fit_size(
            loader,
            chunks,
            imatrix,
            target_size=target_size,
            target_bits=target_bits,
            threads=count,
            progress=bar,
        )


def _bits(planned: Quantization) -> float:
    return 8 * planned.size / planned.weights


def _show(planned: Quantization) -> None:
    """A line for each tensor, the sum of each type, and the size of the file."""
    rows = [("tensor", "shape", "from", "to", "bytes")]
    bytes_of: Counter[str] = Counter()
    tensors_of: Counter[str] = Counter()
    for name, tensor in planned.source.tensors.items():
        kind = planned.types[name].name
        shape = " x ".join(map(str, tensor.shape))
        rows.append((name, shape, tensor.type.name, kind, size(planned.size_of(name))))
        bytes_of[kind] += planned.size_of(name)
        tensors_of[kind] += 1
    write_columns(rows, right=(4,))
    print()
    totals = [("type", "tensors", "bytes")]
    totals += [(kind, str(tensors_of[kind]), size(count)) for kind, count in bytes_of.most_common()]
    totals.append(("all", str(len(planned.types)), size(planned.size)))
    write_columns(totals, right=(1, 2))
    print(f"\n{_bits(planned):.2f} bits per weight")
