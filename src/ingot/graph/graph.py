"""ComputationGraph: a network as an ordered list of operations.

Built once per model by `ingot.models`, run by a backend for every batch. It is checked
when it is made: every value is written once, before it is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ingot.errors import GraphError
from ingot.graph.ops import Embed, Op, Value, Weight, WriteKv


@dataclass(frozen=True, slots=True)
class KvLayer:
    """What one layer keeps per token: a key and a value per head, and for how long."""

    heads: int
    head_size: int
    window: int  # positions that stay visible; 0: all of them


@dataclass(frozen=True, slots=True)
class ComputationGraph:
    """Operations in the order they run, from token ids to logits."""

    ops: tuple[Op, ...]
    logits: Value
    kv_layers: tuple[KvLayer, ...]
    context_length: int

    def __post_init__(self) -> None:
        written: set[str] = set()
        for op in self.ops:
            for value in op.inputs:
                if value.name not in written:
                    raise GraphError(f"{type(op).__name__} reads {value.name} before it is written")
            for value in op.outputs:
                if value.name in written:
                    raise GraphError(f"{type(op).__name__} writes {value.name} a second time")
                written.add(value.name)
            if isinstance(op, WriteKv) and not 0 <= op.layer < len(self.kv_layers):
                raise GraphError(f"there is no cache for layer {op.layer}")
        if self.logits.name not in written:
            raise GraphError("no operation writes the logits")

    def values(self) -> Iterator[Value]:
        """Every value, in the order they are written."""
        for op in self.ops:
            yield from op.outputs

    def weights(self) -> Iterator[Weight]:
        """Every tensor that is read, once each, in order of first use."""
        seen: set[str] = set()
        for op in self.ops:
            for weight in op.weights:
                if weight.name not in seen:
                    seen.add(weight.name)
                    yield weight

    @property
    def vocabulary_size(self) -> int:
        """Rows of the embedding."""
        return next(op.weight.shape[0] for op in self.ops if isinstance(op, Embed))
