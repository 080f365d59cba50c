"""What a drawing of a graph shows: boxes, the arrows between them, equal layers folded.

A `GraphListing` comes in. Layers that follow each other and do the same become one section with
a count; the values that come into it come from whatever stands before it. `dot.py` and `svg.py`
put a `Drawing` on paper.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ingot.graph.listing import GraphListing, ListedOp, ListedValue
from ingot.graph.ops import CacheUse
from ingot.graph.ops.record import layer_prefix


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the box that writes to the box that reads; `value` is None for the cache."""

    source: int
    target: int
    value: ListedValue | None


@dataclass(frozen=True, slots=True)
class Section:
    """Boxes that stand for one layer, or for `count` equal ones; without a title: for none."""

    title: str
    count: int
    boxes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes are operations, numbered as they stand here; inside layers names have no `blk.N.`."""

    boxes: tuple[ListedOp, ...]
    arrows: tuple[Arrow, ...]
    sections: tuple[Section, ...]

    @classmethod
    def of(cls, listing: GraphListing) -> "Drawing":
        """Fold a listing."""
        boxes: list[ListedOp] = []
        arrows: list[Arrow] = []
        sections: list[Section] = []
        home: dict[str, tuple[int, ListedValue]] = {}  # value -> the box that stands for its writer
        for layers in _folded(listing.ops):
            first = len(boxes)
            for ops in layers:  # the same boxes stand for all of them
                for number, op in enumerate(ops, first):
                    home.update((value.name, (number, value)) for value in op.writes)
            writes_cache = first
            for number, op in enumerate(layers[0], first):
                arrows += (Arrow(home[n][0], number, home[n][1]) for n in dict.fromkeys(op.reads))
                if op.cache is CacheUse.WRITTEN:
                    writes_cache = number
                elif op.cache is CacheUse.READ:
                    arrows.append(Arrow(writes_cache, number, None))
                boxes.append(_short(op))
            sections.append(Section(_title(layers), len(layers), tuple(range(first, len(boxes)))))
        return cls(tuple(boxes), tuple(arrows), tuple(sections))


_Layer = tuple[ListedOp, ...]


def _folded(ops: Sequence[ListedOp]) -> Iterator[list[_Layer]]:
    """Runs of equal layers; what belongs to no layer stands for itself."""
    layers = [tuple(group) for _, group in groupby(ops, key=lambda op: op.layer)]
    for _, run in groupby(layers, key=_shape):
        equal = list(run)
        if equal[0][0].layer is None:
            yield from ([layer] for layer in equal)
        else:
            yield equal


def _shape(layer: _Layer) -> tuple[object, ...]:
    """What two layers that do the same have in common."""
    inside = {value.name for op in layer for value in op.writes}
    outside: dict[str, str] = {}

    def place(name: str) -> str:
        """A value of the layer by its name, others by the order in which they are met."""
        if name in inside:
            return _inside(layer[0], name)
        return outside.setdefault(name, f"outside {len(outside)}")

    return tuple(
        (
            op.kind,
            op.remarks,
            tuple(map(place, op.reads)),
            tuple((_inside(op, weight.name), weight.shape) for weight in op.weights),
            tuple((_inside(op, value.name), value.width) for value in op.writes),
            op.layer is None,
        )
        for op in layer
    )


def _title(layers: list[_Layer]) -> str:
    first, last = layers[0][0].layer, layers[-1][0].layer
    if first is None:
        return ""
    return f"layer {first}" if first == last else f"layers {first} to {last}, x {len(layers)}"


def _short(op: ListedOp) -> ListedOp:
    return replace(
        op,
        reads=tuple(_inside(op, name) for name in op.reads),
        weights=tuple(replace(w, name=_inside(op, w.name)) for w in op.weights),
        writes=tuple(replace(value, name=_inside(op, value.name)) for value in op.writes),
    )


def _inside(op: ListedOp, name: str) -> str:
    """A name as it stands inside the layer of an operation."""
    return name.removeprefix(layer_prefix(op.layer))
