"""Adapter: for some matrices of a model, two small ones whose product is added.

    y = x @ weight.T + scale * (x @ down.T) @ up.T

`down` is LoRA's A and `up` its B. Names are those of the model file, in the form of llama.cpp's
adapter files: `output.weight` is the output matrix even if it is the embedding's, and the embedding
has a row of `down` for each token. A stack of experts has both matrices for each expert, one after
the other. Nothing here knows files or backends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats
from ingot.errors import AdapterError
from ingot.gguf import GgmlType
from ingot.graph import ComputationGraph
from ingot.graph import ops as o

EMBEDDING = "token_embd.weight"
TABLES = frozenset({EMBEDDING, "per_layer_token_embd.weight"})  # whose rows tokens look up
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

    def panels(self, height: int, stacked: int = 1) -> "FloatMatrix":
        """Its columns, `height` rows of each beside each other: [panels * columns, height].

        The last panel is filled up with zeros; of a stack, the last one of each matrix.
        """
        matrices = self.values.reshape(stacked, -1, self.columns)
        filled = np.pad(matrices, ((0, 0), (0, -matrices.shape[1] % height), (0, 0)))
        turned = filled.reshape(-1, height, self.columns).transpose(0, 2, 1)
        return FloatMatrix(self.type, np.ascontiguousarray(turned).reshape(-1, height))

    def transposed(self) -> "FloatMatrix":
        """Rows as columns."""
        return FloatMatrix(self.type, np.ascontiguousarray(self.values.T))


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """What an adapter adds to one matrix, or to each of a stack of experts."""

    down: FloatMatrix  # [rank, inputs]; of an embedding [tokens, rank]
    up: FloatMatrix  # [outputs, rank]
    scale: float
    experts: int = 0  # 0: no stack

    @property
    def stacked(self) -> int:
        """Matrices that are added to."""
        return max(1, self.experts)

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

    @property
    def rank(self) -> int:
        """The largest rank of its additions."""
        return max((low.rank for low in self.tensors.values()), default=0)

    def of_matrix(self, weight: o.Weight) -> LowRank | None:
        """What it adds to a matrix, or to the rows of one that are read."""
        found = self.tensors.get(matrix_name(weight))
        if found is None or weight.tensor_rows is None:
            return found
        return LowRank(found.down, found.up.picked(weight.rows), found.scale)

    def of_experts(self, part: o.ExpertPart) -> LowRank | None:
        """What it adds to the rows of experts that are read."""
        found = self.tensors.get(part.weight.name)
        if found is None or part.rows == part.weight.shape[1]:
            return found
        rows = np.arange(found.up.rows).reshape(found.stacked, -1)[:, part.read].reshape(-1)
        return LowRank(found.down, found.up.picked(rows), found.scale, found.experts)

    def additions(self, op: o.Op) -> list[LowRank | None]:
        """What it adds to the matrices of an operation that can be adapted, in order."""
        if op.adapted_table:
            return [self.of_table(op.adapted_table)]
        if op.adapted_experts:
            return [self.of_experts(part) for part in op.adapted_experts]
        return [self.of_matrix(weight) for weight in op.adapted_matrices]

    def of_table(self, weight: o.Weight) -> LowRank | None:
        """What it adds to the rows of an embedding."""
        return self.tensors.get(weight.name)

    def require_no_experts(self) -> None:
        """Raise `AdapterError` if it changes experts, which no kernel of a GPU computes."""
        for name, low in self.tensors.items():
            if low.experts:
                raise AdapterError(
                    f"{self.path} changes {name}: adapters of experts run on the CPU only. Use "
                    "device='cpu', or merge the adapter into the model (`ingot merge-lora`)"
                )

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
                        "and adapters of such tensors are not supported: only matrices, the "
                        "embedding and the output"
                        if name in others
                        else "which the model does not have; the adapter is for another model"
                    )
                )
            place = places[name]
            rows, columns, experts = place.rows, place.columns, place.experts
            count, stacked = low.stacked, max(1, experts)
            found = (
                (low.up.rows, low.down.rows, low.down.columns)
                if place.is_table
                else (low.up.rows, low.down.columns, low.down.rows)
            )
            wanted = (
                (columns, rows, low.rank)
                if place.is_table
                else (stacked * rows, columns, stacked * low.rank)
            )
            if found != wanted or low.experts != experts:
                raise AdapterError(
                    f"{self.path}: {name} is {_of_each(experts)}{rows} x {columns} in the model, "
                    f"and the adapter has {_of_each(low.experts)}A {low.down.rows // count} x "
                    f"{low.down.columns} and B {low.up.rows // count} x {low.up.columns}; the "
                    "adapter is for another model"
                )


def matrix_name(weight: o.Weight) -> str:
    """The name of a linear map's matrix in an adapter; the embedding's is the output's there."""
    return OUTPUT if weight.name == EMBEDDING else weight.name


class _Place(NamedTuple):
    """A matrix that can be adapted, an embedding, or a stack of experts."""

    rows: int
    columns: int
    is_table: bool = False
    experts: int = 0


def _places(graph: ComputationGraph) -> dict[str, _Place]:
    """What can be adapted."""
    places = {}
    for op in graph.all_ops:
        for weight in op.adapted_matrices:
            if len(weight.tensor_shape) != 2:  # Gemma 3n: several matrices between its streams
                continue
            rows, columns = weight.tensor_shape
            places[matrix_name(weight)] = _Place(rows, columns)
        for part in op.adapted_experts:
            experts, rows, columns = part.weight.shape
            places[part.weight.name] = _Place(rows, columns, experts=experts)
        if op.adapted_table:
            rows, columns = op.adapted_table.tensor_shape
            places[op.adapted_table.name] = _Place(rows, columns, is_table=True)
    return places


def _of_each(experts: int) -> str:
    return f"{experts} times " if experts else ""


def combined(parts: Sequence[tuple[Adapter, float]]) -> Adapter:
    """One adapter that adds what several do, each times its own scale."""
    names = dict.fromkeys(name for adapter, _ in parts for name in adapter.tensors)
    tensors = {
        name: _joined(
            [(adapter.tensors[name], scale) for adapter, scale in parts if name in adapter.tensors],
            is_table=name in TABLES,
        )
        for name in names
    }
    return Adapter(" + ".join(adapter.path for adapter, _ in parts), tensors)


def _joined(parts: Sequence[tuple[LowRank, float]], *, is_table: bool) -> LowRank:
    """The ranks of all, one after the other, with their scales in `up`."""
    first, scale = parts[0]
    if len(parts) == 1:
        return replace(first, scale=first.scale * scale)
    if is_table:
        down = np.concatenate([low.down.floats() for low, _ in parts], 1)
    else:
        columns = first.down.columns
        stacks = [low.down.floats().reshape(low.stacked, -1, columns) for low, _ in parts]
        down = np.concatenate(stacks, 1).reshape(-1, columns)
    up = np.concatenate(
        [low.up.floats() * np.float32(low.scale * scale) for low, scale in parts], 1
    )
    return LowRank(FloatMatrix.of(down), FloatMatrix.of(up), 1.0, first.experts)
