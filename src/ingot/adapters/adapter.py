"""Adapter: for some matrices of a model, two small ones whose product is added.

    y = x @ weight.T + scale * (x @ down.T) @ up.T

`down` is LoRA's A and `up` its B. Names are those of the model file, in the form of llama.cpp's
adapter files: `output.weight` is the output matrix even if it is the embedding's, and the embedding
has a row of `down` for each token. Nothing here knows files or backends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats
from ingot.errors import AdapterError
from ingot.gguf import GgmlType
from ingot.graph import ComputationGraph
from ingot.graph import ops as o

EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
TYPES = (GgmlType.F32, GgmlType.F16, GgmlType.BF16)


@dataclass(frozen=True, slots=True, eq=False)
class FloatMatrix:
    """A matrix [rows, columns] of F32, F16 or BF16."""

    type: GgmlType
    values: NDArray[Any]  # of BF16: the bits, as uint16

    @classmethod
    def of(cls, values: NDArray[Any]) -> "FloatMatrix":
        """A matrix of NumPy's floats."""
        half = values.dtype == np.float16
        kept = np.ascontiguousarray(values, np.float16 if half else np.float32)
        return cls(GgmlType.F16 if half else GgmlType.F32, kept)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.values.shape[0])

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return int(self.values.shape[1])

    @property
    def data(self) -> Bytes:
        """Its bytes."""
        return self.values.reshape(-1).view(np.uint8)

    def floats(self) -> Floats:
        """The values as float32."""
        if self.type is GgmlType.BF16:
            return (self.values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return self.values.astype(np.float32, copy=False)

    def picked(self, rows: slice | NDArray[np.int64]) -> "FloatMatrix":
        """Some of its rows."""
        return FloatMatrix(self.type, np.ascontiguousarray(self.values[rows]))

    def panels(self, height: int) -> "FloatMatrix":
        """Its columns, `height` rows of each beside each other: [panels * columns, height].

        The last panel is filled up with zeros.
        """
        filled = np.pad(self.values, ((0, -self.rows % height), (0, 0)))
        turned = filled.reshape(-1, height, self.columns).transpose(0, 2, 1)
        return FloatMatrix(self.type, np.ascontiguousarray(turned).reshape(-1, height))

    def transposed(self) -> "FloatMatrix":
        """Rows as columns."""
        return FloatMatrix(self.type, np.ascontiguousarray(self.values.T))


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """What an adapter adds to one matrix."""

    down: FloatMatrix  # [rank, inputs]; of an embedding [tokens, rank]
    up: FloatMatrix  # [outputs, rank]
    scale: float

    @property
    def rank(self) -> int:
        """Numbers that an input becomes in between."""
        return self.up.columns

    @property
    def nbytes(self) -> int:
        """Bytes of both matrices."""
        return int(self.down.values.nbytes + self.up.values.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """Additions by the names of the model's tensors."""

    path: str
    tensors: Mapping[str, LowRank]
    task: str = ""  # what it is for, as its file says
    prompt_prefix: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of all its matrices."""
        return sum(low.nbytes for low in self.tensors.values())

    def of_matrix(self, weight: o.Weight) -> LowRank | None:
        """What it adds to a matrix, or to the rows of one that are read."""
        found = self.tensors.get(matrix_name(weight))
        if found is None or weight.tensor_rows is None:
            return found
        return LowRank(found.down, found.up.picked(weight.rows), found.scale)

    def of_table(self, weight: o.Weight) -> LowRank | None:
        """What it adds to the rows of an embedding."""
        return self.tensors.get(weight.name)

    def require_fit(self, graph: ComputationGraph) -> None:
        """Raise `AdapterError` if a tensor has no place in a model, or another shape."""
        if not self.tensors:
            raise AdapterError(f"{self.path} has no LoRA tensors")
        places = _places(graph)
        others = {weight.name for weight in graph.weights()}
        for name, low in self.tensors.items():
            if name not in places:
                raise AdapterError(
                    f"{self.path} changes {name}, "
                    + (
                        "and adapters of such tensors are not supported: only matrices that are "
                        "not those of experts, the embedding and the output"
                        if name in others
                        else "which the model does not have; the adapter is for another model"
                    )
                )
            rows, columns, is_table = places[name]
            found = (
                (low.up.rows, low.down.rows, low.down.columns)
                if is_table
                else (low.up.rows, low.down.columns, low.down.rows)
            )
            wanted = (columns, rows, low.rank) if is_table else (rows, columns, low.rank)
            if found != wanted:
                raise AdapterError(
                    f"{self.path}: {name} is {rows} x {columns} in the model, and the adapter has "
                    f"A {low.down.rows} x {low.down.columns} and B {low.up.rows} x "
                    f"{low.up.columns}; the adapter is for another model"
                )


def matrix_name(weight: o.Weight) -> str:
    """The name of a linear map's matrix in an adapter; the embedding's is the output's there."""
    return OUTPUT if weight.name == EMBEDDING else weight.name


def _places(graph: ComputationGraph) -> dict[str, tuple[int, int, bool]]:
    """Rows and columns of what can be adapted, and whether it is an embedding."""
    places = {}
    for op in graph.all_ops:
        for weight in op.adapted_matrices:
            rows, columns = weight.tensor_shape
            places[matrix_name(weight)] = (rows, columns, False)
        if op.adapted_table:
            rows, columns = op.adapted_table.tensor_shape
            places[op.adapted_table.name] = (rows, columns, True)
    return places


def combined(parts: Sequence[tuple[Adapter, float]]) -> Adapter:
    """One adapter that adds what several do, each times its own scale."""
    names = dict.fromkeys(name for adapter, _ in parts for name in adapter.tensors)
    tensors = {
        name: _joined(
            [(adapter.tensors[name], scale) for adapter, scale in parts if name in adapter.tensors],
            axis=1 if name == EMBEDDING else 0,
        )
        for name in names
    }
    return Adapter(" + ".join(adapter.path for adapter, _ in parts), tensors)


def _joined(parts: Sequence[tuple[LowRank, float]], axis: int) -> LowRank:
    """The ranks of all, one after the other, with their scales in `up`."""
    if len(parts) == 1:
        low, scale = parts[0]
        return LowRank(low.down, low.up, low.scale * scale)
    down = np.concatenate([low.down.floats() for low, _ in parts], axis)
    up = np.concatenate(
        [low.up.floats() * np.float32(low.scale * scale) for low, scale in parts], 1
    )
    return LowRank(FloatMatrix.of(down), FloatMatrix.of(up), 1.0)
