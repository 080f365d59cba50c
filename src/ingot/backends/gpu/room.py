"""All the device memory that steps need beside the weights, asked for in one place.

On PyTorch's device "meta", which has no memory, the same code counts what a model will take
(`planner.py`): what does not fit is refused before anything is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from ingot.backends.gpu import attention, linear
from ingot.backends.gpu.attention import AttentionWork
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.experts import ExpertWork
from ingot.backends.gpu.linear import Workspace
from ingot.backends.gpu.matrices import MatrixPlan
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.planes import CHUNK
from ingot.backends.gpu.sampler import SamplerWork
from ingot.graph import MemoryPlan
from ingot.graph import ops as o
from ingot.graph.fusion import FusedGraph
from ingot.graph.kv_layout import KvLayout


@dataclass(frozen=True, slots=True)
class Room:
    """The pools of a backend."""

    cache: list[torch.Tensor]  # a group each
    arena: torch.Tensor  # float32
    x: torch.Tensor  # halves: the input of a linear map
    turned: torch.Tensor  # halves: queries
    linear: Workspace
    attention: AttentionWork
    experts: ExpertWork | None
    sampler: SamplerWork

    @classmethod
    def of(
        cls,
        memory: DeviceMemory,
        graph: FusedGraph,
        plan: MemoryPlan,
        matrices: Sequence[MatrixPlan],
        layout: KvLayout,
        device: Device,
        *,
        blocks: int,
        context: int,
        tokens: int,
    ) -> "Room":
        """For a cache of so many blocks and steps of so many tokens."""
        attends = [op for op in graph.ops if isinstance(op, o.Attend)]
        heads = max((op.query.width for op in attends), default=1)
        width = max((matrix.sizes.chunks * CHUNK for matrix in matrices), default=CHUNK)
        inputs = memory.pool(2 * tokens * (width + heads) + 512)
        return cls(
            cache=[memory.pool(blocks * group.block_bytes).memory for group in layout.groups],
            arena=memory.pool(plan.size * tokens).memory.view(torch.float32),
            x=inputs.take(2 * tokens * width).view(torch.float16),
            turned=inputs.take(2 * tokens * heads).view(torch.float16),
            linear=_linear(memory, matrices, device),
            attention=_attention(memory, attends, context),
            experts=_experts(memory, graph, tokens),
            sampler=SamplerWork.of(memory, graph.logits.width),
        )


def _linear(memory: DeviceMemory, matrices: Sequence[MatrixPlan], device: Device) -> Workspace:
    """Experts share no columns out, and are never unpacked."""
    plain = [matrix.sizes for matrix in matrices if not matrix.experts]
    sums = max((linear.work_floats(sizes, device) for sizes in plain), default=0)
    counters = max((sizes.rows // 32 for sizes in plain), default=0)
    scratch = max((sizes.rows * sizes.chunks * CHUNK for sizes in plain), default=0)
    sums, counters = 2 * sums, 2 * counters + 8  # of two matrices in one kernel
    pool = memory.pool(aligned(4 * sums) + aligned(4 * counters) + aligned(2 * scratch))
    return Workspace(
        pool.take(4 * sums).view(torch.float32),
        pool.take(4 * counters).view(torch.int32),
        pool.take(2 * scratch).view(torch.float16),
    )


def _attention(memory: DeviceMemory, ops: Sequence[o.Attend], context: int) -> AttentionWork:
    parts = -(-context // attention.part_positions(context))
    rows = attention.MAX_TOKENS * parts * max((op.heads for op in ops), default=0)
    width = max(
        (triton.next_power_of_2(max(16, op.query.width // op.heads)) for op in ops), default=0
    )
    sizes = (4 * rows * width, 4 * rows, 4 * rows)
    pool = memory.pool(sum(aligned(size) for size in sizes))
    return AttentionWork(*(pool.take(size).view(torch.float32) for size in sizes))


def _experts(memory: DeviceMemory, graph: FusedGraph, tokens: int) -> ExpertWork | None:
    mixes = [op for op in graph.ops if isinstance(op, o.ExpertMix)]
    if not mixes:
        return None
    return ExpertWork.of(
        memory,
        experts=max(op.weight.shape[0] for op in mixes),
        pairs=tokens * max(op.choice.width // 2 for op in mixes),
        widest=max(op.out.width for op in mixes),
    )
