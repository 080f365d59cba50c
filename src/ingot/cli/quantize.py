"""`ingot quantize`: a smaller file of a model, or with --dry-run how small it would be."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from ingot.bar import DownloadBar
from ingot.cli.shared.find_model import locate
from ingot.cli.shared.output import notice, size, write_columns
from ingot.convert import open_model
from ingot.errors import ConfigError
from ingot.quantize import Quantization, parse_override, plan
from ingot.quantize.imatrix import read_imatrix
from ingot.quantize.mixes import MIXES, mix_of


def command(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A model, best F16, BF16 or F32; also a folder.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT.gguf", help="The file to be written.")],
    type: Annotated[str, typer.Argument(metavar="TYPE", help=f"{', '.join(MIXES)}.")],
    *,
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

    TYPE is one of llama.cpp's mixes, with the same types for the same tensors. Norms, biases and
    routers stay as they are. The file appears when it is complete.

    Example: ingot quantize model-F16.gguf model-Q4_K_M.gguf q4_k_m --tensor-type ffn_down=q6_k
    """
    mix = mix_of(type)
    overrides = [parse_override(text) for text in tensor_type or ()]
    path = locate(source)
    with open_model(path) as loader:
        planned = plan(
            loader,
            mix,
            overrides,
            imatrix=None if imatrix is None else read_imatrix(imatrix),
            allow_requantize=allow_requantize,
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
            )
        notice(
            f"{size(sum(t.nbytes for t in loader.tensors.values()))} -> {size(planned.size)}, "
            f"{_bits(planned):.2f} bits per weight"
        )
    print(paths[0])


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
