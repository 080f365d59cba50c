"""The weights of a model on the device: which tensors become which matrices, and small tensors.

Linear layers of one input whose tensors have the same type are one matrix, so that one kernel runs
them: query, key and value below each other, gate and up row by row in turn. The matrices of experts
or heads lie below each other, each filled up to whole tiles. A `MatrixPlan` says so before anything
is sent; `matrix_sources` are the bytes to send, and `MatrixStore` packs what arrives. `Vectors` are
floats (norms, biases, positions) and the tables of RoPE.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.gpu.kernels.heads import RopeTable
from ingot.backends.gpu.memory import MemoryPool, aligned
from ingot.backends.gpu.planes import ROW_TILE, Planes, PlaneSizes, form_of, pack
from ingot.backends.gpu.upload import Source, Uploader
from ingot.gguf import GgmlType, HasTensors
from ingot.graph import ops as o
from ingot.quant import decode

MAX_PARTS = 3  # tensors below each other in one matrix
MAX_BLOCK = 128  # rows that a program takes
_FLOATS = {
    GgmlType.F32: torch.float32,
    GgmlType.F16: torch.float16,
    GgmlType.BF16: torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class HeadRows:
    """Which rows of each head in a tensor are its matrix, or the columns of it."""

    heads: int
    first: int
    rows: int
    transposed: bool

    def of(self, raw: torch.Tensor) -> torch.Tensor:
        """The matrices [heads, rows, ...] in a tensor's rows."""
        taken = raw.reshape(self.heads, -1, raw.shape[-1])[:, self.first : self.first + self.rows]
        return taken.transpose(1, 2) if self.transposed else taken


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Rows of every expert in a tensor."""

    weight: o.Weight
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """Tensors that make one matrix: below each other, or row by row in turn.

    With `of_experts`, these are what comes in turn; a tensor may hold several of them.
    """

    weights: tuple[o.Weight, ...]
    type: GgmlType
    interleaved: bool = False
    of_heads: HeadRows | None = None  # a matrix for each head, and none for experts
    of_experts: tuple[ExpertRows, ...] = ()

    @property
    def experts(self) -> int:
        """The number of experts, or of heads, whose matrices it holds; 0: none."""
        shape = self.weights[0].shape
        if self.of_heads:
            return self.of_heads.heads
        return shape[0] if len(shape) == 3 else 0

    @property
    def columns(self) -> int:
        """As long as an input."""
        if self.of_heads and self.of_heads.transposed:
            return self.of_heads.rows
        return self.weights[0].shape[-1]

    @property
    def rows(self) -> tuple[int, ...]:
        """Of each tensor, or of each expert or head in it, or of each part of an expert."""
        if self.of_heads:
            transposed = self.of_heads.transposed
            return (self.weights[0].shape[-1] if transposed else self.of_heads.rows,)
        if self.of_experts:
            return tuple(part.rows for part in self.of_experts)
        return tuple(weight.shape[-2] for weight in self.weights)

    @property
    def expert_rows(self) -> int:
        """Of one expert, with those that fill the last tile."""
        return -(-sum(self.rows) // ROW_TILE) * ROW_TILE

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of each tensor: a multiple of the rows that a kernel's block takes."""
        padded = [-(-rows // MAX_BLOCK) * MAX_BLOCK for rows in self.rows]
        return tuple(sum(padded[:index]) for index in range(len(padded)))

    @property
    def sizes(self) -> PlaneSizes:
        """What it takes on the device."""
        if self.experts:
            rows = self.experts * self.expert_rows
        elif self.interleaved:
            rows = sum(self.rows)
        else:
            rows = self.starts[-1] + self.rows[-1]
        return PlaneSizes.of(form_of(self.type), rows, self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        sizes = self.sizes
        return sum(aligned(n) for n in (sizes.code_bytes, sizes.extra_bytes, sizes.scale_bytes))

    @property
    def copied(self) -> bool:
        """Whether blocks are copied before they are packed: joined, picked or filled up."""
        filled = self.experts > 0 and sum(self.rows) < self.expert_rows
        return len(self.weights) > 1 or bool(self.of_heads or self.of_experts) or filled

    def sent_bytes(self, model: HasTensors) -> int:
        """Bytes that travel: the blocks of the file, or floats."""
        return sum(_sent_bytes(weight, self.type, model) for weight in self.weights)


def plan_embedding(op: o.Embed, model: HasTensors) -> MatrixPlan:
    """The matrix of the embedding."""
    return MatrixPlan((op.weight,), model.tensors[op.weight.name].type)


def plan_linear(
    op: o.FusedLinear, model: HasTensors
) -> list[tuple[MatrixPlan, tuple[o.LinearPart, ...]]]:
    """The matrices of linear layers of one input, and the parts each of them computes."""
    if op.activation and len(op.parts) == 2:
        return [(_plan_turns([part.weight for part in op.parts], model), op.parts)]
    groups: dict[tuple[GgmlType, float], list[o.LinearPart]] = {}
    for part in op.parts:
        groups.setdefault((model.tensors[part.weight.name].type, part.scale), []).append(part)
    return [
        (MatrixPlan(tuple(_flat(part.weight) for part in few), type), few)
        for (type, _), parts in groups.items()
        for few in _at_most(parts, MAX_PARTS)
    ]


def _flat(weight: o.Weight) -> o.Weight:
    """A tensor of several matrices below each other as one matrix."""
    *rows, columns = weight.shape
    return weight if len(rows) == 1 else o.Weight(weight.name, (prod(rows), columns))


def _at_most(parts: Sequence[o.LinearPart], count: int) -> Iterator[tuple[o.LinearPart, ...]]:
    return (tuple(parts[at : at + count]) for at in range(0, len(parts), count))


def plan_experts(op: o.ExpertGate | o.ExpertMix, model: HasTensors) -> MatrixPlan:
    """The matrix of all experts; gate and up may be two tensors, or rows of one."""
    if isinstance(op, o.ExpertMix):
        return _plan_turns([op.weight], model)
    parts = tuple(ExpertRows(part.weight, part.first, part.rows) for part in op.parts)
    turns = _plan_turns(list(dict.fromkeys(part.weight for part in parts)), model)
    return replace(turns, of_experts=parts)


def plan_heads(op: o.HeadLinear, model: HasTensors) -> MatrixPlan:
    """The matrices of all heads. Blocks lie along rows, so what is transposed becomes floats."""
    taken = HeadRows(op.heads, op.first, op.rows, op.transposed)
    type = GgmlType.F32 if op.transposed else model.tensors[op.weight.name].type
    return MatrixPlan((op.weight,), type, of_heads=taken)


def _plan_turns(weights: Sequence[o.Weight], model: HasTensors) -> MatrixPlan:
    types = [model.tensors[weight.name].type for weight in weights]
    same = all(type is types[0] for type in types)
    return MatrixPlan(tuple(weights), types[0] if same else GgmlType.F32, interleaved=True)


def plan_matrices(ops: Sequence[o.Op], model: HasTensors) -> list[MatrixPlan]:
    """Every matrix of a graph, once each, in order of first use."""
    plans: dict[MatrixPlan, None] = {}
    for op in ops:
        match op:
            case o.Embed():
                plans[plan_embedding(op, model)] = None
            case o.FusedLinear():
                plans.update(dict.fromkeys(plan for plan, _ in plan_linear(op, model)))
            case o.ExpertGate() | o.ExpertMix():
                plans[plan_experts(op, model)] = None
            case o.HeadLinear():
                plans[plan_heads(op, model)] = None
    return list(plans)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Small tensors as floats, each sent once."""

    model: HasTensors
    device: torch.device
    context: int
    _sent: dict[o.Weight, torch.Tensor] = field(default_factory=dict)
    _ropes: dict[o.Rotary, RopeTable] = field(default_factory=dict)

    def get(self, weight: o.Weight | None) -> torch.Tensor | None:
        """A tensor, or its rows that are read, flat."""
        if weight is None:
            return None
        if weight not in self._sent:
            tensor = self.model.tensors[weight.name]
            values = decode(tensor.data, tensor.type).reshape(weight.tensor_shape)
            rows = torch.from_numpy(values[weight.rows].reshape(-1))
            self._sent[weight] = rows.to(self.device)
        return self._sent[weight]

    def rope(self, rope: o.Rotary) -> RopeTable:
        """Cosines and sines of all positions, computed in float64 as the reference does."""
        if rope not in self._ropes:
            angles = np.outer(np.arange(self.context), rope.frequencies)
            cos, sin = (
                torch.from_numpy((turn(angles) * rope.magnitude).astype(np.float32))
                for turn in (np.cos, np.sin)
            )
            self._ropes[rope] = RopeTable(cos.to(self.device), sin.to(self.device))
        return self._ropes[rope]


class MatrixStore:
    """Matrices on the device, each sent once."""

    def __init__(self, model: HasTensors) -> None:
        self._model = model
        self._sent: dict[MatrixPlan, Planes] = {}

    def has(self, plans: Iterable[MatrixPlan]) -> bool:
        """Whether all of these matrices were received."""
        return self._sent.keys() >= set(plans)

    def lacks(self, plans: Iterable[MatrixPlan]) -> list[MatrixPlan]:
        """Those of these matrices that were not received."""
        return [plan for plan in plans if plan not in self._sent]

    def lend(self, model: HasTensors, names: Collection[str]) -> "MatrixStore":
        """A store for another file, with those matrices whose tensors are all among `names`."""
        other = MatrixStore(model)
        for plan, planes in self._sent.items():
            if all(weight.name in names for weight in plan.weights):
                other._sent[plan] = planes
        return other

    def get(self, plan: MatrixPlan) -> Planes:
        """A matrix that was received."""
        return self._sent[plan]

    def receive(self, plan: MatrixPlan, uploader: Uploader, pool: MemoryPool) -> None:
        """Pack the tensors of a matrix, which the uploader sends next, into the pool."""
        raw = self._joined(plan, uploader)
        if plan.experts:
            raw = _padded(raw, plan.expert_rows).flatten(0, 1)
        self._sent[plan] = pack(raw, plan.type, plan.columns, pool.take)

    def _joined(self, plan: MatrixPlan, uploader: Uploader) -> torch.Tensor:
        """The blocks of all tensors of a matrix; what was sent is freed."""
        raws = [self._raw(weight, plan.type, uploader) for weight in plan.weights]
        if plan.of_heads:
            return plan.of_heads.of(raws[0])
        if plan.of_experts:
            sent = dict(zip(plan.weights, raws, strict=True))
            taken = [
                sent[part.weight][:, part.first : part.first + part.rows]
                for part in plan.of_experts
            ]
            return torch.stack(taken, dim=-2).flatten(-3, -2) if len(taken) > 1 else taken[0]
        if len(raws) == 1:
            return raws[0]
        if plan.interleaved:
            return torch.stack(raws, dim=-2).flatten(-3, -2)
        ends = [*plan.starts[1:], plan.starts[-1] + plan.rows[-1]]
        heights = [e - s for s, e in zip(plan.starts, ends, strict=True)]
        return torch.cat([_padded(r, h) for r, h in zip(raws, heights, strict=True)])

    def _raw(self, weight: o.Weight, planned: GgmlType, uploader: Uploader) -> torch.Tensor:
        """A tensor's blocks [rows, bytes of a row]; floats if the device has no form for it.

        Of experts: [experts, rows, bytes of a row].
        """
        sent = uploader.receive(_sent_bytes(weight, planned, self._model))
        type = _sent_type(weight, planned, self._model)
        if type in _FLOATS:
            sent = sent.view(_FLOATS[type])
        return sent.reshape(*weight.shape[:-1], -1)


def matrix_sources(plans: Sequence[MatrixPlan], model: HasTensors) -> Iterator[Source]:
    """What an uploader has to send for these matrices, in their order."""
    for plan in plans:
        for weight in plan.weights:
            yield partial(_sent_data, weight, plan.type, model)


def _sent_data(weight: o.Weight, planned: GgmlType, model: HasTensors) -> NDArray[np.uint8]:
    tensor = model.tensors[weight.name]
    data = tensor.data.reshape(weight.tensor_shape[0], -1)[weight.rows]
    if _sent_type(weight, planned, model) is tensor.type:
        return data
    return decode(np.ascontiguousarray(data), tensor.type).reshape(-1).view(np.uint8)


def _sent_type(weight: o.Weight, planned: GgmlType, model: HasTensors) -> GgmlType:
    """The type as which a tensor is sent: its own, or floats if the device has no form for it."""
    type = model.tensors[weight.name].type
    as_it_is = type is planned and (type in _FLOATS or form_of(type).bits != 16)
    return type if as_it_is else GgmlType.F32


def _sent_bytes(weight: o.Weight, planned: GgmlType, model: HasTensors) -> int:
    type = _sent_type(weight, planned, model)
    return prod(weight.shape) // type.block_size * type.block_bytes


def _padded(raw: torch.Tensor, rows: int) -> torch.Tensor:
    """Zeros below: [..., rows, bytes of a row]."""
    if rows == raw.shape[-2]:
        return raw
    return torch.nn.functional.pad(raw, (0, 0, 0, rows - raw.shape[-2]))
