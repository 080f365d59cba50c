"""What the operations of one step share: tokens, values so far, weights and the cache.

`compute` is the table of operations: each function registered for a kind of operation reads its
inputs from a `Step` and returns the value it writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.errors import ModelError
from ingot.graph import ops as o

Matrix = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(slots=True)
class Cache:
    """What is left of one sequence: keys and values, per layer [positions, width], and states."""

    keys: dict[int, Matrix] = field(default_factory=dict)
    values: dict[int, Matrix] = field(default_factory=dict)
    states: dict[int, Matrix] = field(default_factory=dict)  # of recurrent operations
    length: int = 0
    encoded: int = 0  # positions that an encoder wrote

    def store(self, kv_layer: int, key: Matrix, value: Matrix) -> None:
        """Add keys and values of the next positions to a layer.

        Positions that it does not have, because only the encoder has this layer, are 0.
        """
        for kept, new in ((self.keys, key), (self.values, value)):
            before = kept.get(kv_layer, new[:0])
            gap = np.zeros((self.length - len(before), new.shape[1]), new.dtype)
            kept[kv_layer] = np.concatenate([before, gap, new])


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens of one sequence that run now."""

    ids: Ints
    positions: Ints
    types: Ints
    outputs: list[int] | None  # the tokens whose logits are wanted; None: all
    rows: Matrix | None  # of graphs that begin with rows
    cache: Cache
    tensors: Mapping[str, Matrix]
    dtype: type[np.floating[Any]]
    adapter: Adapter | None = None
    adapter_scale: float = 1.0
    values: dict[str, Matrix] = field(default_factory=dict)

    def value(self, value: o.Value) -> Matrix:
        """A value that an operation before has written."""
        return self.values[value.name]

    def weight(self, weight: o.Weight) -> Matrix:
        """A tensor, or the rows of it that are read."""
        return self.tensors[weight.name][weight.rows]

    def floats(self, matrix: FloatMatrix) -> Matrix:
        """A matrix of the adapter."""
        return matrix.floats().astype(self.dtype)

    def low_rank(self, low: LowRank, inside: Matrix) -> Matrix:
        """What the adapter adds, from the row of its rank."""
        out: Matrix = inside @ self.floats(low.up).T
        return out * self.dtype(low.scale * self.adapter_scale)

    def optional(self, weight: o.Weight | None) -> Matrix | None:
        """A tensor that may be missing."""
        return None if weight is None else self.weight(weight)


@singledispatch
def compute(op: o.Op, step: Step) -> Matrix | None:  # noqa: ARG001
    """The value that an operation writes, or None if it writes none."""
    raise ModelError(f"the reference backend has no {type(op).__name__}")
