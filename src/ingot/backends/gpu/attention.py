"""Launch what happens between the linear maps of a layer: heads, cache, attention."""

from dataclasses import dataclass

import numpy as np
import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.inputs import Inputs
from ingot.backends.gpu.kernels.attend_generation import attend_generation_kernel
from ingot.backends.gpu.kernels.attend_prompt import attend_prompt_kernel
from ingot.backends.gpu.kernels.join_parts import MOST_PARTS, join_parts_kernel
from ingot.backends.gpu.kernels.store_kv import store_kv_kernel
from ingot.backends.gpu.step import Step
from ingot.errors import ModelError
from ingot.graph import ops as o
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType

MAX_TOKENS = 64  # of a generation that one launch takes
_LEAST_PART = 128  # positions
_LEAST_SPAN = 16  # what a product on the matrix units takes
_TYPES = {
    KvType.F32: torch.float32,
    KvType.F16: torch.float16,
    KvType.BF16: torch.bfloat16,
    KvType.Q8_0: torch.int8,
    KvType.FP8: torch.uint8,
}


def check_kv_type(type: KvType) -> None:
    """Refuse a storage that the GPU cannot read."""
    if type not in _TYPES:
        raise ModelError(
            f"the GPU cannot store keys and values as {type}; it can as {', '.join(_TYPES)}"
        )


def part_positions(context: int) -> int:
    """Positions of one part of a sequence's past: a context has at most 64 parts."""
    return int(max(_LEAST_PART, triton.next_power_of_2(-(-context // MOST_PARTS.value))))


@dataclass(frozen=True, slots=True)
class PromptTile:
    """Queries that a program takes, and positions of a step of it."""

    rows: int
    span: int

    @classmethod
    def of(cls, size: int, type: KvType, device: Device) -> "PromptTile":
        """For heads of a size: as tuned, or as large as shared memory allows."""
        tile = cls(128, _span(type))
        while (
            tile.rows > _LEAST_SPAN
            and _tile_bytes(tile.rows, tile.span, size, type) > device.shared_memory
        ):
            if tile.rows > 2 * tile.span or tile.span == _LEAST_SPAN:
                tile = cls(tile.rows // 2, tile.span)
            else:
                tile = cls(tile.rows, tile.span // 2)
        return tile


def generation_span(rows: int, size: int, type: KvType, device: Device) -> int:
    """Positions of a step of a generation, which has so many query heads of a size."""
    span = _span(type)
    while span > _LEAST_SPAN and _tile_bytes(rows, span, size, type) > device.shared_memory:
        span //= 2
    return span


def _span(type: KvType) -> int:
    return 32 if type is KvType.F32 else 64


def _tile_bytes(rows: int, span: int, size: int, type: KvType) -> int:
    """Shared memory of queries, keys, values and scores, at most (see compile_kernels.py)."""
    padded = padded_size(size)
    number = 4 if type is KvType.F32 else 2
    stored = 1 if type in (KvType.Q8_0, KvType.FP8) else 0  # as they are read, beside the halves
    return number * rows * (padded + span) + 2 * (number + stored) * span * padded


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines of every position and pair."""

    cos: torch.Tensor
    sin: torch.Tensor
    pairs: int
    adjacent: bool

    @classmethod
    def of(cls, rope: o.Rotary, positions: int, device: torch.device) -> "Rotary":
        """Computed in float64, as the reference does."""
        angles = np.outer(np.arange(positions), rope.frequencies)
        tables = [
            torch.from_numpy((turn(angles) * rope.magnitude).astype(np.float32)).to(device)
            for turn in (np.cos, np.sin)
        ]
        adjacent = rope.layout is o.RopeLayout.ADJACENT
        return cls(tables[0], tables[1], len(rope.frequencies), adjacent)


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """The norm of a head, if it has one."""

    weight: torch.Tensor | None = None
    stride: int = 0  # from the weights of a head to the next one's
    epsilon: float = 0.0
    layer: bool = False

    @property
    def kind(self) -> int:
        """As kernels name it."""
        return 0 if self.weight is None else 2 if self.layer else 1


@dataclass(frozen=True, slots=True)
class CacheView:
    """A layer's part of the cache, in elements of the storage type."""

    group: int
    pool: torch.Tensor
    pool_scales: torch.Tensor
    block_stride: int
    layer_start: int
    head_size: int
    side: int
    quantized: bool

    @classmethod
    def of(cls, layout: KvLayout, layer: int, kind: o.KvLayer, pool: torch.Tensor) -> "CacheView":
        """Of one layer."""
        place = layout.places[layer]
        type = _TYPES[layout.type]
        size = type.itemsize
        side = layout.type.row_bytes(kind.head_size) * BLOCK_TOKENS
        return cls(
            group=place.group,
            pool=pool.view(type),
            pool_scales=pool.view(torch.float16),
            block_stride=layout.groups[place.group].block_bytes // size,
            layer_start=place.offset // size,
            head_size=kind.head_size,
            side=side // size,
            quantized=layout.type is KvType.Q8_0,
        )


@dataclass(frozen=True, slots=True)
class Heads:
    """What attention makes its queries, keys and values of."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    query_norm: HeadNorm
    key_norm: HeadNorm
    rotary: Rotary | None
    count: int
    kv_count: int

    def norms(self) -> tuple[torch.Tensor | int | float | None, ...]:
        """As kernels take them: weights, strides, epsilons, turns."""
        query, key, rotary = self.query_norm, self.key_norm, self.rotary
        return (
            query.weight,
            key.weight,
            query.stride,
            key.stride,
            query.epsilon,
            key.epsilon,
            rotary.cos if rotary else None,
            rotary.sin if rotary else None,
        )

    def constants(self) -> dict[str, int | bool]:
        """As kernels name them."""
        return {
            "QUERY_NORM": self.query_norm.kind,
            "KEY_NORM": self.key_norm.kind,
            "PAIRS": self.rotary.pairs if self.rotary else 0,
            "ADJACENT": self.rotary.adjacent if self.rotary else False,
        }


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """Memory for the parts of a sequence's past."""

    mixed: torch.Tensor
    best: torch.Tensor
    total: torch.Tensor


@dataclass(frozen=True, slots=True)
class AttentionLauncher:
    """Runs the attention of all layers."""

    device: Device
    context: int
    work: AttentionWork
    type: KvType
    tile: PromptTile

    def store(
        self, heads: Heads, turned: torch.Tensor, cache: CacheView, inputs: Inputs, blocks: int
    ) -> None:
        """Heads of all tokens: queries to `turned`, keys and values to the cache."""
        store_kv_kernel[(heads.count + heads.kv_count, inputs.tokens)](
            heads.query,
            heads.key,
            heads.value,
            turned,
            *heads.norms(),
            inputs.positions,
            inputs.sequences,
            inputs.tables[cache.group],
            blocks,
            cache.pool,
            cache.pool_scales,
            cache.block_stride,
            cache.layer_start,
            heads.count,
            heads.kv_count,
            SIZE=cache.head_size,
            PADDED=triton.next_power_of_2(cache.head_size),
            SIDE=cache.side,
            Q8=cache.quantized,
            **heads.constants(),
            num_warps=1,
        )

    def attend(
        self,
        op: o.Attend,
        heads: Heads,
        turned: torch.Tensor,
        out: torch.Tensor,
        out_scale: float,
        sinks: torch.Tensor | None,
        cache: CacheView,
        step: Step,
        blocks: int,
    ) -> None:
        """out = attention of the turned queries, as halves times out_scale.

        Where every sequence has one token, heads are turned and stored here, too.
        """
        inputs = step.inputs
        table = (inputs.tables[cache.group], blocks)
        pool = (cache.pool, cache.pool_scales, cache.block_stride, cache.layer_start)
        group = op.heads // op.kv_heads
        kind = (sinks, op.heads, group, op.scale, op.softcap, op.window)
        constants = {
            "SIZE": cache.head_size,
            "PADDED": padded_size(cache.head_size),
            "SIDE": cache.side,
            "CAPPED": op.softcap > 0,
            "SINKS": sinks is not None,
            "Q8": cache.quantized,
            "HALF": out.dtype == torch.float16,
        }
        if step.phase is ExecutionPhase.PROMPT:
            attend_prompt_kernel[(op.heads, inputs.tile_count)](
                turned,
                out,
                out_scale,
                inputs.tiles,
                inputs.positions,
                *table,
                *pool,
                *kind,
                ROWS=self.tile.rows,
                SPAN=self.tile.span,
                STAGES=2,
                num_warps=prompt_warps(self.tile),
                enable_fp_fusion=False,  # masked and whole tiles round alike
                **constants,
            )
            return
        rows = max(16, triton.next_power_of_2(group))
        span = generation_span(rows, cache.head_size, self.type, self.device)
        part = part_positions(self.context)
        parts = -(-self.context // part)
        work = self.work
        for first in range(0, inputs.tokens, MAX_TOKENS):
            count = min(MAX_TOKENS, inputs.tokens - first)
            attend_generation_kernel[(parts, op.kv_heads, count)](
                heads.query if step.single else turned,
                heads.key,
                heads.value,
                *heads.norms(),
                out,
                out_scale,
                first,
                inputs.positions,
                inputs.sequences,
                *table,
                *pool,
                *kind,
                work.mixed,
                work.best,
                work.total,
                ROWS=rows,
                SPAN=span,
                PART=part,
                STAGES=2,
                STORE=step.single,
                num_warps=8,
                **constants,
                **heads.constants(),
                **self.device.order(),
            )
            if parts == 1:
                continue
            join_parts_kernel[(op.heads, count)](
                out,
                out_scale,
                first,
                inputs.positions,
                sinks,
                op.heads,
                parts,
                op.window,
                work.mixed,
                work.best,
                work.total,
                SIZE=cache.head_size,
                PADDED=padded_size(cache.head_size),
                PART=part,
                SINKS=sinks is not None,
                HALF=out.dtype == torch.float16,
                num_warps=4,
                **self.device.order(),
            )


def padded_size(size: int) -> int:
    """A head's size as attention holds it."""
    return int(max(16, triton.next_power_of_2(size)))


def prompt_warps(tile: PromptTile) -> int:
    """Of 16 queries each, but at least four."""
    return max(4, tile.rows // 16)
