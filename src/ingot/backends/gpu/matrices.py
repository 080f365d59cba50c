"""Which tensors of a file become which matrices on the device.

Linear maps of one input whose tensors have the same type are one matrix, so that one kernel runs
them: query, key and value below each other, gate and up row by row in turn. A `MatrixPlan` says so
before anything is sent; `MatrixStore` sends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ingot.backends.gpu.memory import MemoryPool, aligned
from ingot.backends.gpu.planes import Planes, PlaneSizes, form_of, pack
from ingot.backends.gpu.upload import Uploader
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ops as o
from ingot.graph.fusion import FusedLinear, LinearPart
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

    names: tuple[str, ...]
    rows: tuple[int, ...]
    columns: int
    type: GgmlType
    interleaved: bool = False

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of each tensor: a multiple of the rows that a kernel's block takes."""
        padded = [-(-rows // MAX_BLOCK) * MAX_BLOCK for rows in self.rows]
        return tuple(sum(padded[:index]) for index in range(len(padded)))

    @property
    def sizes(self) -> PlaneSizes:
        """What it takes on the device."""
        rows = sum(self.rows) if self.interleaved else self.starts[-1] + self.rows[-1]
        return PlaneSizes.of(form_of(self.type), rows, self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        sizes = self.sizes
        return sum(aligned(n) for n in (sizes.code_bytes, sizes.extra_bytes, sizes.scale_bytes))


def plan_embedding(op: o.Embed, model: GgufLoader) -> MatrixPlan:
    """The matrix of the embedding."""
    rows, columns = op.weight.shape
    return MatrixPlan((op.weight.name,), (rows,), columns, model.tensors[op.weight.name].type)


def plan_linear(
    op: FusedLinear, model: GgufLoader
) -> list[tuple[MatrixPlan, tuple[LinearPart, ...]]]:
    """The matrices of a linear map and the parts each of them computes."""
    columns = op.source.width
    types = [model.tensors[part.weight.name].type for part in op.parts]

    def plan(parts: Sequence[LinearPart], type: GgmlType, *, turns: bool = False) -> MatrixPlan:
        names = tuple(part.weight.name for part in parts)
        rows = tuple(part.weight.shape[0] for part in parts)
        return MatrixPlan(names, rows, columns, type, turns)

    if op.activation and len(op.parts) == 2:
        type = types[0] if types[0] is types[1] else GgmlType.F32  # decoded to halves
        return [(plan(op.parts, type, turns=True), op.parts)]
    groups: list[tuple[MatrixPlan, tuple[LinearPart, ...]]] = []
    for type in dict.fromkeys(types):
        same = [part for part, its in zip(op.parts, types, strict=True) if its is type]
        groups.append((plan(same, type), tuple(same)))
    return groups


class MatrixStore:
    """Matrices on the device, each sent once."""

    def __init__(self, model: GgufLoader, pool: MemoryPool, uploader: Uploader) -> None:
        self._model = model
        self._pool = pool
        self._uploader = uploader
        self._sent: dict[MatrixPlan, Planes] = {}

    def get(self, plan: MatrixPlan) -> Planes:
        """The matrix, sent now if it is not there yet."""
        if plan not in self._sent:
            raws = [self._raw(name, plan.type) for name in plan.names]
            if plan.interleaved:
                raw = torch.stack(raws, dim=1).flatten(0, 1)
            elif len(raws) == 1:
                raw = raws[0]
            else:
                ends = [*plan.starts[1:], plan.starts[-1] + plan.rows[-1]]
                heights = [e - s for s, e in zip(plan.starts, ends, strict=True)]
                raw = torch.cat(
                    [
                        torch.nn.functional.pad(part, (0, 0, 0, height - len(part)))
                        for part, height in zip(raws, heights, strict=True)
                    ]
                )
            self._sent[plan] = pack(raw, plan.type, plan.columns, self._pool.take)
        return self._sent[plan]

    def _raw(self, name: str, type: GgmlType) -> torch.Tensor:
        """A tensor's blocks [rows, bytes of a row]; floats where the device has no form for it."""
        tensor = self._model.tensors[name]
        if tensor.type is type and type in _FLOATS:
            sent = self._uploader.send(tensor.data).view(_FLOATS[type])
        elif form_of(tensor.type).bits == 16 or tensor.type is not type:
            values = decode(tensor.data, tensor.type)
            sent = self._uploader.send(values.view(np.uint8)).view(torch.float32)
        else:
            sent = self._uploader.send(tensor.data)
        return sent.reshape(tensor.shape[0], -1)
