"""`ingot inspect --graph`: the computation graph of a model, as text, JSON, SVG or Graphviz.

JSON (`--json`):

    fused                   whether this is the fused graph, which runs, or the graph before fusion
    operations              in order: operation, remarks, layer (integer or null), reads, writes
                            (names of values), weights: name, shape (rows first) and first_row
                            (not 0 if the operation reads only some rows of a tensor)
    values                  name, width, bytes_per_token; offset in the arena (bytes per token),
                            first and last operation of its lifetime. The last three are null for
                            the logits, which are outside the arena
    arena_bytes_per_token   memory of all values; values that are never alive together share bytes
    unshared_bytes_per_token
                            memory of all values without sharing
    logits_bytes_per_token  for each token that needs logits
    kv_cache                type, and per group of layers: window (0: none), bytes_per_token;
                            state_bytes per sequence, if layers are recurrent
    encoder                 of an encoder-decoder: the same of the graph that reads prompts (with
                            the same cache); null for others

A drawing of an encoder-decoder shows its decoder.
"""

from pathlib import Path
from typing import Any

from ingot.cli.shared.output import notice, printable, size, write_columns, write_json
from ingot.errors import ConfigError
from ingot.files import write_file
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.dot import to_dot
from ingot.graph.drawing import Drawing
from ingot.graph.fusion import fuse
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.graph.listing import GraphListing, ListedOp, ListedValue
from ingot.graph.svg import to_svg
from ingot.memory_estimate import BATCH_TOKENS
from ingot.models import build_graph

_WRITERS = {".svg": to_svg, ".dot": to_dot, ".gv": to_dot}


def show_graph(
    loader: GgufLoader, kv_type: KvType, *, fused: bool, output: Path | None, json: bool
) -> None:
    """Print a model's graph, or draw it to a file."""
    if output and output.suffix.lower() not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise ConfigError(f"--output is {str(output)!r}; its name must end in one of {known}")
    graph = build_graph(loader)

    def listed(part: ComputationGraph) -> GraphListing:
        return GraphListing.of(fuse(part) if fused else part)

    listing, encoder = listed(graph), listed(graph.encoder) if graph.encoder else None
    layout = KvLayout.of(graph.kv_layers, kv_type, graph.states)
    if output:
        title = f"{loader.path.name}{'' if fused else ', before fusion'}"
        text = _WRITERS[output.suffix.lower()](Drawing.of(listing), printable(title))
        write_file(output, [text.encode()])
        notice(f"wrote {output}")
    elif json:
        own = _json(encoder, layout, fused=fused) if encoder else None
        write_json({**_json(listing, layout, fused=fused), "encoder": own})
    else:
        name = loader.path.name
        if encoder:
            _write_text(encoder, layout, f"the encoder of {name}", fused=fused)
            print()
        _write_text(listing, layout, f"the decoder of {name}" if encoder else name, fused=fused)


def _values(listing: GraphListing) -> list[ListedValue]:
    return [value for op in listing.ops for value in op.writes]


def _logits_bytes(listing: GraphListing) -> int:
    return sum(value.bytes for value in _values(listing) if value.slot is None)


def _cache_bytes(layout: KvLayout) -> list[tuple[int, int]]:
    """Window and bytes per token of each group of layers in the KV cache."""
    return [
        (group.window, group.block_bytes // BLOCK_TOKENS)
        for group in layout.groups
        if not group.recurrent
    ]


def _state_bytes(layout: KvLayout) -> int:
    """Bytes of a sequence's state, at any length."""
    return sum(group.block_bytes for group in layout.groups if group.recurrent)


def _json(listing: GraphListing, layout: KvLayout, *, fused: bool) -> dict[str, Any]:
    return {
        "fused": fused,
        "operations": [
            {
                "operation": op.kind,
                "remarks": op.remarks,
                "layer": op.layer,
                "reads": op.reads,
                "weights": [
                    {"name": w.name, "shape": w.shape, "first_row": w.first_row} for w in op.weights
                ],
                "writes": [value.name for value in op.writes],
            }
            for op in listing.ops
        ],
        "values": [
            {
                "name": value.name,
                "width": value.width,
                "bytes_per_token": value.bytes,
                "offset": value.slot and value.slot.offset,
                "first": value.slot and value.slot.first,
                "last": value.slot and value.slot.last,
            }
            for value in _values(listing)
        ],
        "arena_bytes_per_token": listing.arena,
        "unshared_bytes_per_token": listing.unshared,
        "logits_bytes_per_token": _logits_bytes(listing),
        "kv_cache": {
            "type": layout.type.name,
            "groups": [
                {"window": window, "bytes_per_token": count}
                for window, count in _cache_bytes(layout)
            ],
            "state_bytes": _state_bytes(layout),
        },
    }


def _write_text(listing: GraphListing, layout: KvLayout, name: str, *, fused: bool) -> None:
    values = _values(listing)
    how = "fused, as it runs" if fused else "before fusion"
    print(f"graph of {printable(name)}, {how}")
    print(f"{len(listing.ops)} operations, {len(values)} values; bytes are per token\n")
    heading = ("#", "operation", "reads", "weights", "writes", "bytes", "offset", "lifetime")
    rows: list[tuple[str, ...]] = [heading]
    for number, op in enumerate(listing.ops):
        rows += _rows(number, op)
    write_columns(rows, right=(0, 5, 6, 7))
    print()
    step = size(listing.arena * BATCH_TOKENS)
    shared = f"{listing.unshared / listing.arena:.0f} times as much without sharing"
    totals = [
        ("arena", f"{listing.arena} bytes per token, {step} for {BATCH_TOKENS} tokens; {shared}"),
        ("logits", f"{_logits_bytes(listing)} bytes per token that needs them, outside the arena"),
    ]
    for window, count in _cache_bytes(layout):
        seen = f"layers with a window of {window} tokens" if window else "layers without a window"
        totals.append(("KV cache", f"{count} bytes per token as {layout.type.name}, {seen}"))
    if layout.recurrent:
        totals.append(("state", f"{_state_bytes(layout)} bytes per sequence, at any length"))
    write_columns(totals)


def _rows(number: int, op: ListedOp) -> list[tuple[str, ...]]:
    """The rows of one operation: one for each of its weights, reads or writes."""
    lines: list[tuple[str, ...]] = []
    for line in range(max(1, len(op.weights), len(op.reads), len(op.writes))):
        first = (str(number), ", ".join((op.kind, *op.remarks))) if line == 0 else ("", "")
        read = op.reads[line] if line < len(op.reads) else ""
        weight = ""
        if line < len(op.weights):
            tensor = op.weights[line]
            shape = " x ".join(map(str, tensor.shape))
            weight = f"{tensor.name} {shape}"
            weight += f" from row {tensor.first_row}" if tensor.tensor_rows else ""
        lines.append((*first, read, weight, *_value_cells(op.writes[line : line + 1])))
    return lines


def _value_cells(value: tuple[ListedValue, ...]) -> tuple[str, str, str, str]:
    if not value:
        return "", "", "", ""
    (found,) = value
    if found.slot is None:
        return found.name, str(found.bytes), "-", "-"
    life = f"{found.slot.first} to {found.slot.last}"
    return found.name, str(found.bytes), str(found.slot.offset), life
