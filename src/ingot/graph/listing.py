"""A graph as a list to read: every operation, what it reads and writes, and what that takes.

A graph (as described, or fused as it runs) comes in; frozen rows of names and numbers go out,
for whoever shows them (`ingot inspect --graph`, `ingot.graph.drawing`). The words are the
operations' own (`Op.label`, `Op.remarks`).
"""

from dataclasses import dataclass

from ingot.graph.fusion import FusedGraph
from ingot.graph.graph import ComputationGraph
from ingot.graph.memory_plan import MemoryPlan, Slot
from ingot.graph.ops import CacheUse, Op, Weight

_FLOAT = 4


@dataclass(frozen=True, slots=True)
class ListedValue:
    """A value, its bytes for each token, and its place and life in the arena."""

    name: str
    width: int
    slot: Slot | None  # None: the logits, which go where the caller wants them

    @property
    def bytes(self) -> int:
        """Bytes per token."""
        return self.width * _FLOAT


@dataclass(frozen=True, slots=True)
class ListedOp:
    """An operation in words."""

    kind: str
    remarks: tuple[str, ...]
    layer: int | None  # None before the first layer and after the last
    reads: tuple[str, ...]
    weights: tuple[Weight, ...]
    writes: tuple[ListedValue, ...]
    cache: CacheUse | None  # what it does to what is kept between steps
    colour: str  # of its box in a drawing


@dataclass(frozen=True, slots=True)
class GraphListing:
    """Operations in the order they run."""

    ops: tuple[ListedOp, ...]
    arena: int  # bytes per token, shared by values that are not alive together
    unshared: int  # bytes per token that the same values would take side by side

    @classmethod
    def of(cls, graph: ComputationGraph | FusedGraph) -> "GraphListing":
        """List a graph."""
        plan = MemoryPlan.of(graph)
        return cls(
            ops=tuple(_listed(op, plan) for op in graph.ops),
            arena=plan.size,
            unshared=sum(slot.size for slot in plan.slots.values()),
        )


def _listed(op: Op, plan: MemoryPlan) -> ListedOp:
    return ListedOp(
        kind=op.label,
        remarks=tuple(remark for remark in op.remarks if remark),
        layer=op.layer,
        reads=tuple(value.name for value in op.inputs),
        weights=op.weights,
        writes=tuple(
            ListedValue(value.name, value.width, plan.slots.get(value.name)) for value in op.outputs
        ),
        cache=op.cache_use,
        colour=op.colour,
    )
