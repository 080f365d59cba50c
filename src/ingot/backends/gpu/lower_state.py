"""What the launches of a model are made of: where its values, weights and cache are on the device.

Operations are lowered in their order; what those before have left is noted here. `launch_of` is
the table of operations that the GPU runs, `missing` the table of what it cannot do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch

import torch

from ingot.backends.gpu.attention import AttentionLauncher, Heads
from ingot.backends.gpu.experts import ExpertLauncher
from ingot.backends.gpu.linear import LinearLauncher
from ingot.backends.gpu.matrices import MatrixStore
from ingot.backends.gpu.step import Launch
from ingot.backends.gpu.values import Values
from ingot.backends.gpu.vectors import Vectors
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.graph.fusion import FusedGraph
from ingot.graph.kv_layout import KvLayout


@dataclass(slots=True)
class State:
    """What lowering knows."""

    graph: FusedGraph
    cap: float  # of the logits; 0: none
    model: GgufLoader
    values: Values
    vectors: Vectors
    store: MatrixStore
    linear: LinearLauncher
    attention: AttentionLauncher
    experts: ExpertLauncher | None
    layout: KvLayout
    pools: Sequence[torch.Tensor]
    table_blocks: int  # of a row of a block table
    x: torch.Tensor  # halves: the input of a linear map
    turned: torch.Tensor  # halves: queries
    chosen: torch.Tensor  # tokens of the step before
    selected: bool = False  # whether values are those of wanted tokens only
    heads: dict[int, Heads] = field(default_factory=dict)  # of the layers so far
    ready: o.Normalization | None = None  # whose output is in x
    following: o.Op | None = None  # the operation after the one that is lowered

    @property
    def order(self) -> dict[str, bool]:
        """How kernels follow each other."""
        return self.linear.device.order()


@singledispatch
def launch_of(op: o.Op, state: State) -> Launch:  # noqa: ARG001
    """What launches the kernels of an operation."""
    raise AssertionError(f"{type(op).__name__} was to be refused (supported.py)")


@singledispatch
def missing(op: o.Op) -> str | None:
    """What no kernel computes of an operation, in words; None if all of it runs."""
    known = launch_of.dispatch(type(op)) is not launch_of.dispatch(o.Op)
    return None if known else type(op).__name__
