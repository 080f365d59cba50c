"""Which tensors of a file become which matrices on the device.

Linear maps of one input whose tensors have the same type are one matrix, so that one kernel runs
them: query, key and value below each other, gate and up row by row in turn. The matrices of experts
lie below each other, each filled up to whole tiles. A `MatrixPlan` says so before anything is sent;
`matrix_sources` are the bytes to send, and `MatrixStore` packs what arrives.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.gpu.memory import MemoryPool, aligned
from ingot.backends.gpu.planes import ROW_TILE, Planes, PlaneSizes, form_of, pack
from ingot.backends.gpu.upload import Source, Uploader
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ops as o
from ingot.quant import decode

MAX_BLOCK = 128  # rows that a program takes
_FLOATS = {
    GgmlType.F32: torch.float32,
    GgmlType.F16: torch.float16,
    GgmlType.BF16: torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class MatrixPlan:
    """Tensors that make one matrix: below each other, or row by row in turn."""

    weights: tuple[o.Weight, ...]
    type: GgmlType
    interleaved: bool = False

    @property
    def experts(self) -> int:
        """Of how many experts it holds matrices; 0: it is no matrix of experts."""
        shape = self.weights[0].shape
        return shape[0] if len(shape) == 3 else 0

    @property
    def columns(self) -> int:
        """As long as an input."""
        return self.weights[0].shape[-1]

    @property
    def rows(self) -> tuple[int, ...]:
        """Of each tensor, or of each expert in it."""
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

    def sent_bytes(self, model: GgufLoader) -> int:
        """Bytes that travel: the blocks of the file, or floats."""
        return sum(_sent_bytes(weight, self.type, model) for weight in self.weights)


def plan_embedding(op: o.Embed, model: GgufLoader) -> MatrixPlan:
    """The matrix of the embedding."""
    return MatrixPlan((op.weight,), model.tensors[op.weight.name].type)


def plan_linear(
    op: o.FusedLinear, model: GgufLoader
) -> list[tuple[MatrixPlan, tuple[o.LinearPart, ...]]]:
    """The matrices of a linear map and the parts each of them computes."""
    if op.activation and len(op.parts) == 2:
        return [(_plan_turns([part.weight for part in op.parts], model), op.parts)]
    groups: dict[tuple[GgmlType, float], list[o.LinearPart]] = {}
    for part in op.parts:
        groups.setdefault((model.tensors[part.weight.name].type, part.scale), []).append(part)
    return [
        (MatrixPlan(tuple(part.weight for part in parts), type), tuple(parts))
        for (type, _), parts in groups.items()
    ]


def plan_experts(op: o.ExpertGate | o.ExpertMix, model: GgufLoader) -> MatrixPlan:
    """The matrix of all experts."""
    return _plan_turns(list(op.with_role(o.Role.MATRIX)), model)


def _plan_turns(weights: Sequence[o.Weight], model: GgufLoader) -> MatrixPlan:
    types = [model.tensors[weight.name].type for weight in weights]
    same = all(type is types[0] for type in types)
    return MatrixPlan(tuple(weights), types[0] if same else GgmlType.F32, interleaved=True)


def plan_matrices(ops: Sequence[o.Op], model: GgufLoader) -> list[MatrixPlan]:
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
    return list(plans)


class MatrixStore:
    """Matrices on the device, each sent once."""

    def __init__(self, model: GgufLoader, pool: MemoryPool) -> None:
        self._model = model
        self._pool = pool
        self._sent: dict[MatrixPlan, Planes] = {}

    def get(self, plan: MatrixPlan) -> Planes:
        """A matrix that was received."""
        return self._sent[plan]

    def receive(self, plan: MatrixPlan, uploader: Uploader) -> None:
        """Pack the tensors of a matrix, which the uploader sends next."""
        raw = self._joined(plan, uploader)
        if plan.experts:
            raw = _padded(raw, plan.expert_rows).flatten(0, 1)
        self._sent[plan] = pack(raw, plan.type, plan.columns, self._pool.take)

    def _joined(self, plan: MatrixPlan, uploader: Uploader) -> torch.Tensor:
        """The blocks of all tensors of a matrix; what was sent is freed."""
        raws = [self._raw(weight, plan.type, uploader) for weight in plan.weights]
        if len(raws) == 1:
            return raws[0]
        if plan.interleaved:
            return torch.stack(raws, dim=-2).flatten(-3, -2)
        ends = [*plan.starts[1:], plan.starts[-1] + plan.rows[-1]]
        heights = [e - s for s, e in zip(plan.starts, ends, strict=True)]
        return torch.cat([_padded(r, h) for r, h in zip(raws, heights, strict=True)])

    def _raw(self, weight: o.Weight, planned: GgmlType, uploader: Uploader) -> torch.Tensor:
        """A tensor's blocks [rows, bytes of a row]; floats where the device has no form for it.

        Of experts: [experts, rows, bytes of a row].
        """
        sent = uploader.receive(_sent_bytes(weight, planned, self._model))
        type = _sent_type(weight, planned, self._model)
        if type in _FLOATS:
            sent = sent.view(_FLOATS[type])
        return sent.reshape(*weight.shape[:-1], -1)


def matrix_sources(plans: Sequence[MatrixPlan], model: GgufLoader) -> Iterator[Source]:
    """What an uploader has to send for these matrices, in their order."""
    for plan in plans:
        for weight in plan.weights:
            yield partial(_sent_data, weight, plan.type, model)


def _sent_data(weight: o.Weight, planned: GgmlType, model: GgufLoader) -> NDArray[np.uint8]:
    tensor = model.tensors[weight.name]
    data = tensor.data.reshape(weight.tensor_shape[0], -1)[weight.rows]
    if _sent_type(weight, planned, model) is tensor.type:
        return data
    return decode(np.ascontiguousarray(data), tensor.type).reshape(-1).view(np.uint8)


def _sent_type(weight: o.Weight, planned: GgmlType, model: GgufLoader) -> GgmlType:
    """As what a tensor travels: as it is, or as floats where the device has no form for it."""
    type = model.tensors[weight.name].type
    as_it_is = type is planned and (type in _FLOATS or form_of(type).bits != 16)
    return type if as_it_is else GgmlType.F32


def _sent_bytes(weight: o.Weight, planned: GgmlType, model: GgufLoader) -> int:
    type = _sent_type(weight, planned, model)
    return prod(weight.shape) // type.block_size * type.block_bytes


def _padded(raw: torch.Tensor, rows: int) -> torch.Tensor:
    """Zeros below: [..., rows, bytes of a row]."""
    return torch.nn.functional.pad(raw, (0, 0, 0, rows - raw.shape[-2]))
