"""`ingot inspect` as text: sections and tables.

A summary, a memory estimate or statistics come in; rich text goes to a console. Strings from the
file are escaped. Nothing is computed here.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ingot.cli.inspect.tensor_statistics import TensorStatistics
from ingot.cli.shared.output import printable, quantity, size
from ingot.gguf import GgufLoader, LazyTensor
from ingot.memory_estimate import MemoryEstimate, ModelDimensions
from ingot.model_summary import ModelSummary

if TYPE_CHECKING:
    from ingot.backends.cpu import Copies

_TEMPLATE_LINES = 16
_BAR = 40
_HEADING = "bold cyan"


def show_model(
    out: Console,
    loader: GgufLoader,
    summary: ModelSummary,
    memory: MemoryEstimate | None,
    copies: "Copies | None",
    *,
    every_tensor: bool,
) -> None:
    """Print a model: its properties, memory, tensors and chat template."""
    out.print(Text(printable(loader.path.name), "bold"), soft_wrap=True)
    _facts(out, _model_facts(summary))
    _show_memory(out, summary, memory, copies)
    if summary.types:
        _show_types(out, summary)
        if every_tensor:
            _show_tensors(out, loader.tensors.values())
        else:
            _show_groups(out, summary)
    _show_template(out, summary.chat_template)


def show_tensor(out: Console, tensor: LazyTensor, found: TensorStatistics) -> None:
    """Print one tensor's statistics and histogram."""
    out.print(Text(printable(tensor.name), "bold"), soft_wrap=True)
    rest = f"{found.nans} NaN, {found.infinities} infinite"
    facts = [
        ("type", f"{tensor.type.name}, {size(tensor.nbytes)}"),
        ("shape", f"{_shape(tensor.shape)}, {found.values} values"),
        ("minimum", _number(found.minimum)),
        ("maximum", _number(found.maximum)),
        ("mean", _number(found.mean)),
        ("std", _number(found.deviation)),
        ("zeros", f"{found.zeros} ({found.zeros / found.values:.1%})"),
        ("not finite", rest if found.nans or found.infinities else "none"),
    ]
    _facts(out, facts)
    if not found.histogram:
        return
    most = max(part.count for part in found.histogram)
    table = _table("histogram", ("from", "right"), ("", "left"), ("values", "right"))
    for part in found.histogram:
        bar = "█" * round(_BAR * part.count / most)
        table.add_row(
            _number(part.low), Text(bar or "▏" * bool(part.count), "cyan"), str(part.count)
        )
    _section(out, table)


def _model_facts(summary: ModelSummary) -> list[tuple[str, str]]:
    parts = f" in {len(summary.files)} files" if len(summary.files) > 1 else ""
    facts = [
        ("architecture", summary.architecture or "not stated"),
        ("name", summary.name or "not stated"),
        ("size", f"{size(summary.file_bytes)}{parts}, GGUF version {summary.version}"),
        ("parameters", quantity(summary.parameters) if summary.parameters else "no tensors"),
    ]
    if summary.bits_per_weight is not None:
        bits = f"{summary.quantization}, {summary.bits_per_weight:.2f} bits per weight"
        facts.append(("quantization", bits))
    if summary.dimensions is not None:
        facts += _dimension_facts(summary.dimensions)
    if summary.vocabulary:
        kind = summary.vocabulary_kind or "model not stated"
        pre = f", pre-tokenizer {summary.pre_tokenizer}" if summary.pre_tokenizer else ""
        facts.append(("vocabulary", f"{summary.vocabulary} tokens, {kind}{pre}"))
    return facts


def _dimension_facts(dimensions: ModelDimensions) -> list[tuple[str, str]]:
    layers = dimensions.layers
    heads = _range(layer.heads for layer in layers)
    kv_heads = _range(layer.kv_heads for layer in layers)
    lengths = _range(
        length for layer in layers for length in (layer.key_length, layer.value_length)
    )
    windows = [layer.window for layer in layers if layer.window is not None]
    sliding = (
        f"; {len(windows)} layers with a sliding window of {_range(windows)} tokens"
        if windows
        else ""
    )
    return [
        ("context", f"{dimensions.context} tokens" if dimensions.context else "not stated"),
        ("layers", f"{len(layers)}, feed-forward {_range(layer.feed_forward for layer in layers)}"),
        ("embedding", str(dimensions.embedding)),
        ("attention", f"{heads} heads, {kv_heads} key/value heads, head size {lengths}{sliding}"),
    ]


def _show_memory(
    out: Console,
    summary: ModelSummary,
    memory: MemoryEstimate | None,
    copies: "Copies | None",
) -> None:
    if memory is None:
        if summary.types:
            reason = (
                "the file does not state a context length; set --context"
                if summary.dimensions
                else "the file does not describe its layers"
            )
            out.print(Text(f"\nmemory: unknown, because {reason}"))
        return
    dimensions = summary.dimensions
    window = dimensions.unplaced_window if dimensions and not memory.built else None
    bound = f"; less with a sliding window of {window}" if window else ""
    values = f"values between ops for {memory.batch} tokens, and a row of logits"
    formula = f"4 * ({memory.batch} * (2 * embedding + widest layer) + vocabulary)"
    out.print(Text(f"\nmemory for {memory.context} tokens", _HEADING))
    rows = [
        ("weights", memory.weights, "tensors, mapped from the file"),
        ("KV cache", memory.kv_cache, f"{memory.kv_type.name} keys and values{bound}"),
        ("arena", memory.arena, values if memory.built else formula),
        ("total", memory.total, ""),
    ]
    if copies is not None:
        pages = "the mapped pages are given back after that" if copies.replace else "beside them"
        rows.append(("copies", copies.size, f"of weights, if memory has room for them; {pages}"))
    for label, count, remark in rows:
        line = Text.assemble((f"{label:12}", "cyan"), f"{size(count):>10}  ", (remark, "dim"))
        line.rstrip()
        out.print(line, soft_wrap=True)


def _show_types(out: Console, summary: ModelSummary) -> None:
    table = _table(
        "types",
        ("type", "left"),
        ("tensors", "right"),
        ("weights", "right"),
        ("bytes", "right"),
        ("share", "right"),
        ("bits per weight", "right"),
    )
    for share in summary.types:
        table.add_row(
            share.type.name,
            str(share.tensors),
            quantity(share.weights),
            size(share.bytes),
            f"{share.share:.1%}",
            f"{share.bits_per_weight:.2f}",
        )
    _section(out, table)


def _show_groups(out: Console, summary: ModelSummary) -> None:
    table = _table(
        "tensors (* is the layer number; --tensors lists each one)",
        ("name", "left"),
        ("tensors", "right"),
        ("type", "left"),
        ("shape", "left"),
        ("bytes", "right"),
    )
    for group in summary.groups:
        types = " ".join(kind.name for kind in group.types)
        shapes = _shape(group.shapes[0]) + (" and others" if len(group.shapes) > 1 else "")
        row = (printable(group.name), str(group.tensors), types, shapes, size(group.bytes))
        table.add_row(*row)
    _section(out, table)


def _show_tensors(out: Console, tensors: Iterable[LazyTensor]) -> None:
    table = _table(
        "tensors", ("name", "left"), ("type", "left"), ("shape", "left"), ("bytes", "right")
    )
    for tensor in tensors:
        name, kind = printable(tensor.name), tensor.type.name
        table.add_row(name, kind, _shape(tensor.shape), size(tensor.nbytes))
    _section(out, table)


def _show_template(out: Console, template: str | None) -> None:
    if template is None:
        return
    lines = printable(template, keep="\n\t").splitlines()
    left = len(lines) - _TEMPLATE_LINES
    if left == 1:
        left = 0
    out.print(Text("\nchat template", _HEADING))
    for line in lines[: _TEMPLATE_LINES if left > 0 else None]:
        out.print(Text(line), soft_wrap=True)
    if left > 0:
        out.print(Text(f"... {left} more lines; --json shows all", "dim"))


def _facts(out: Console, facts: Sequence[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in facts) + 2
    for label, value in facts:
        line = Text.assemble((label.ljust(width), "cyan"), printable(value))
        out.print(line, soft_wrap=True)


def _table(title: str, *columns: tuple[str, Literal["left", "right"]]) -> Table:
    """A table without borders; a column is a heading and an alignment."""
    table = Table(
        title=Text(title, _HEADING),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for number, (heading, justify) in enumerate(columns):
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=number > 0)
    return table


def _section(out: Console, table: Table) -> None:
    out.print()
    out.print(table)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _number(value: int | float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _range(numbers: Iterable[int]) -> str:
    found = set(numbers)
    return str(min(found)) if len(found) == 1 else f"{min(found)} to {max(found)}"
