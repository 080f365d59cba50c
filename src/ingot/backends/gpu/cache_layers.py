"""The KV cache as kernels take it, and memory for the parts of a sequence's past."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import triton

from ingot.backends.gpu.inputs import Inputs
from ingot.backends.gpu.kernels.attend_generation import MOST_PARTS, PartWork
from ingot.backends.gpu.kernels.kv_cache import CacheForm, CacheView
from ingot.backends.gpu.lowering import Context
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.errors import ModelError
from ingot.graph import ops as o
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType

_MOST_TOKENS, _FEWEST_TOKENS = 256, 16  # decoded by one launch
_GUESSED_TOKENS = 64  # of one launch, if sequences are few
_WORK_BYTES = 256 << 20  # of parts, if the fewest tokens do not take more
_LEAST_PART = 128  # positions
_MANY_SEQUENCES = 64  # from here on programs are many, and parts may be twice as long
_TYPES = {
    KvType.F32: torch.float32,
    KvType.F16: torch.float16,
    KvType.BF16: torch.bfloat16,
    KvType.Q8_0: torch.int8,
    KvType.FP8: torch.uint8,
}


def check_kv_type(type: KvType) -> None:
    """Refuse a type of the KV cache that no kernel reads."""
    if type not in _TYPES:
        raise ModelError(
            f"the GPU cannot store keys and values as {type}; it can as {', '.join(_TYPES)}"
        )


def part_positions(context: int, sequences: int) -> int:
    """Positions of one part of a sequence's past: a context has at most 64 parts.

    `sequences` decode at once, at most. On an H200, 256 texts of 1500 tokens are read at 3.7 TB/s
    in parts of 256 and at 3.4 in parts of 128; one of 4000 takes 13 us instead of 11.
    """
    least = _LEAST_PART * (2 if sequences > _MANY_SEQUENCES else 1)
    return int(max(least, triton.next_power_of_2(-(-context // MOST_PARTS.value))))


def padded_size(size: int) -> int:
    """A head's size as attention holds it."""
    return int(max(16, triton.next_power_of_2(size)))


def attention_work(
    memory: DeviceMemory, ops: Sequence[o.Attend], context: int, sequences: int
) -> PartWork:
    """Memory for the parts of the past of the tokens of one launch."""
    parts = -(-context // part_positions(context, sequences))
    of_token = parts * max((op.heads for op in ops), default=0)
    width = max((padded_size(op.out.width // op.heads) for op in ops), default=0)
    fit = _WORK_BYTES // max(1, 4 * of_token * width) // _FEWEST_TOKENS * _FEWEST_TOKENS
    most = min(_MOST_TOKENS, max(sequences, _GUESSED_TOKENS)) // _FEWEST_TOKENS * _FEWEST_TOKENS
    rows = max(_FEWEST_TOKENS, min(most, fit)) * of_token
    sizes = (4 * rows * width, 4 * rows, 4 * rows)
    pool = memory.pool(sum(aligned(size) for size in sizes))
    return PartWork(*(pool.take(size).view(torch.float32) for size in sizes))


def launches(work: PartWork, heads: int, parts: int, tokens: int) -> Iterator[tuple[int, int]]:
    """The first token and the tokens of each launch that decodes so many."""
    room = work.best.numel() // (heads * parts) // _FEWEST_TOKENS * _FEWEST_TOKENS
    for first in range(0, tokens, room):
        yield first, min(room, tokens - first)


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A layer's part of the cache, in elements of the storage type."""

    group: int
    pool: torch.Tensor
    scales: torch.Tensor
    block_stride: int
    layer_start: int
    table_stride: int
    size: int  # of a head
    side: int  # of the keys of one head in a block
    type: KvType

    @classmethod
    def of(cls, layout: KvLayout, layer: int, context: Context) -> "LayerCache":
        """The cache of one layer."""
        place, type = layout.places[layer], _TYPES[layout.type]
        pool = context.memory.cache[place.group]
        size = context.plan.graph.kv_layers[layer].head_size
        return cls(
            group=place.group,
            pool=pool.view(type),
            scales=pool.view(torch.float16),
            block_stride=layout.groups[place.group].block_bytes // type.itemsize,
            layer_start=place.offset // type.itemsize,
            table_stride=context.table_stride,
            size=size,
            side=layout.type.row_bytes(size) * BLOCK_TOKENS // type.itemsize,
            type=layout.type,
        )

    @property
    def q8(self) -> bool:
        """Whether it holds bytes and scales."""
        return self.type is KvType.Q8_0

    @property
    def form(self) -> CacheForm:
        """What kernels are compiled for that read keys and values."""
        return CacheForm(self.size, padded_size(self.size), self.side, self.q8)

    def view(self, inputs: Inputs) -> CacheView:
        """As kernels take it, with the block tables of a batch."""
        return CacheView(
            pool=self.pool,
            scales=self.scales,
            block_stride=self.block_stride,
            layer_start=self.layer_start,
            table=inputs.tables[self.group],
            table_stride=self.table_stride,
        )
