"""Fusion: operations that belong together become one, so that values stay in cache.

- a norm joins the linear maps after it (they normalize and quantize their input once);
- linear maps of the same input become one (query, key, value; gate and up);
- an activation joins the linear map or the gated pair before it;
- an addition joins the linear map or the norm before it (the residual);
- gate, up and activation of the chosen experts become one, and so do their down and mix;
- head norms, RoPE and the write to the cache become one.

A ComputationGraph comes in, a FusedGraph goes out; the values between fused operations
disappear. What a fused operation computes is what its parts did, in the same order. The rules are
the operations' own (`Op.fuse`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from ingot.errors import GraphError
from ingot.graph.graph import ComputationGraph
from ingot.graph.ops import KvLayer, Op, Value
from ingot.graph.ops.neighbours import Neighbours


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """Fused operations in the order they run."""

    ops: tuple[Op, ...]
    logits: Value
    kv_layers: tuple[KvLayer, ...]


def fuse(graph: ComputationGraph, keep: Collection[str] = ()) -> FusedGraph:
    """Fuse all that belongs together; the values to `keep`, by name, do not disappear."""
    around = Neighbours(graph.ops, keep)
    fused = [(op, op.fuse(around)) for op in graph.ops if not around.is_taken(op)]
    # An operation may be taken by a later one: a norm by the linear maps that read it.
    ops = []
    for op, joined in fused:
        if around.is_taken(op):
            continue
        if joined is None:
            raise GraphError(f"{op} cannot stand alone in a fused graph")
        ops.append(joined)
    return FusedGraph(tuple(ops), graph.logits, graph.kv_layers)
