"""Write the tables of docs/gpu.md: what fits which GPU, and formats there, as the planner counts.

    PYTHONPATH=benchmarks python docs/make_gpu_table.py

Needs PyTorch and Triton, but no GPU and no weights: the planner looks at types and shapes alone,
which benchmarks/synthetic.py has. The text around the table stays as it is.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from ingot.backends.gpu import imagined_device
from ingot.backends.gpu.planes import HALF_BITS, PlaneSizes, form_of
from ingot.engine.model.gpu_fit import GpuFit, fit_gpu
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from ingot.quant import formats
from synthetic import MODELS, describe, type_of

PAGE = Path(__file__).with_name("gpu.md")
BEGIN, END = "<!-- table: make_gpu_table.py -->\n", "<!-- end of table -->\n"
BEGIN_FORMATS = "<!-- table of formats: make_gpu_table.py -->\n"
CARDS = (8, 12, 16, 24, 48)  # GB
CONTEXT = 8192
FILES = {
    "Qwen2 1.5B, Q4_K_M": ("qwen2-1.5b", "Q4_K_M"),
    "Qwen2 1.5B, IQ2_XXS": ("qwen2-1.5b", "IQ2_XXS"),
    "Llama-3 8B, Q4_K_M": ("llama3-8b", "Q4_K_M"),
    "gpt-oss-20b, MXFP4 + Q8_0": ("gpt-oss-20b", "MXFP4"),
    "Qwen3 30B-A3B, Q4_K_M": ("qwen3-30b-a3b", "Q4_K_M"),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a planner sees of one."""

    type: GgmlType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its size in a file."""
        return prod(self.shape) // self.type.block_size * self.type.block_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """A model file without its data."""

    path: Path
    metadata: Any
    tensors: dict[str, Tensor]


def header(name: str, mix: str, folder: Path) -> Header:
    """Of a shape in a mix of types."""
    model, path = MODELS[name], folder / f"{name}.gguf"
    writer = GgufWriter(path)
    describe(writer, model)
    writer.add("tokenizer.ggml.tokens", ["none"])
    writer.add(f"{model.architecture}.vocab_size", model.vocabulary)
    writer.write()
    made = {
        tensor: Tensor(type_of(tensor, size, mix, model.layers), size)
        for tensor, size in model.tensors
    }
    return Header(path, GgufLoader(path).metadata, made)


def cell(fit: GpuFit) -> str:
    """Of a model and a card."""
    if fit.layers < fit.of_layers:
        return f"{fit.layers} of {fit.of_layers} layers" if fit.layers else "-"
    rough = 10 ** max(len(str(fit.cache_tokens)) - 2, 0)
    return f"{fit.cache_tokens // rough * rough:,}"


def table() -> str:
    """The lines of the table."""
    cards = " | ".join(f"{card} GB" for card in CARDS)
    lines = [
        f"| model | file | weights | steps | cache of a token | {cards} |",
        "|---|---|---|---|---|" + "---|" * len(CARDS),
    ]
    with TemporaryDirectory() as folder:
        for title, (name, mix) in FILES.items():
            found = header(name, mix, Path(folder))
            model = cast(GgufLoader, found)
            graph = build_graph(model, CONTEXT)
            fits = [
                fit_gpu(
                    graph,
                    model,
                    KvType.F16,
                    imagined_device(),
                    context=CONTEXT,
                    room=card * 10**9,
                )
                for card in CARDS
            ]
            size = sum(tensor.nbytes for tensor in found.tensors.values())
            one = fits[0]
            lines.append(
                f"| {title} | {size / 1e9:.1f} GB | {one.weights / 1e9:.1f} GB | "
                f"{one.steps / 1e9:.1f} GB | {one.token >> 10} KiB | "
                + " | ".join(cell(fit) for fit in fits)
                + " |"
            )
    return "\n".join(lines) + "\n"


def format_table() -> str:
    """What a weight of every format takes in a file and on a device, by the latter."""
    sizes: dict[float, list[GgmlType]] = {}
    for type in formats():
        form = form_of(type)
        if form.bits < HALF_BITS:
            row = PlaneSizes.of(form, 32, 1024).row_bytes  # no chunk is filled up
            sizes.setdefault(row * 8 / 1024, []).append(type)
    lines = ["| bits of a weight on the device | formats, and bits in the file |", "|---|---|"]
    for bits, types in sorted(sizes.items()):
        names = (
            f"{type.name} {type.block_bytes * 8 / type.block_size:.4g}"
            for type in sorted(types, key=lambda type: type.block_bytes / type.block_size)
        )
        lines.append(f"| {bits:g} | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with new tables."""
    for begin, made in ((BEGIN, table), (BEGIN_FORMATS, format_table)):
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = before + begin + made() + END + after
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
