"""What happens between the linear layers of a layer: heads, KV cache, attention."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.inputs import Inputs
from ingot.backends.gpu.kernels.attend_generation import (
    MOST_PARTS,
    GenerationTile,
    PartWork,
    attend_generation_kernel,
    join_parts_kernel,
)
from ingot.backends.gpu.kernels.attend_prompt import PromptTile, attend_prompt_kernel
from ingot.backends.gpu.kernels.attention import Attention
from ingot.backends.gpu.kernels.heads import (
    HeadForm,
    HeadNorm,
    Heads,
    RopeTable,
    store_kv_kernel,
)
from ingot.backends.gpu.kernels.kv_cache import CacheForm, CacheView
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of, missing
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.rows import norm_rows
from ingot.backends.gpu.values import HALF_SCALE
from ingot.errors import ModelError
from ingot.graph import ops as o
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType

_MAX_TOKENS = 64  # decoded by one launch
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
    """Refuse a type of the KV cache that no kernel reads."""
    if type not in _TYPES:
        raise ModelError(
            f"the GPU cannot store keys and values as {type}; it can as {', '.join(_TYPES)}"
        )


def part_positions(context: int) -> int:
    """Positions of one part of a sequence's past: a context has at most 64 parts."""
    return int(max(_LEAST_PART, triton.next_power_of_2(-(-context // MOST_PARTS.value))))


def prompt_tile(size: int, type: KvType, device: Device) -> PromptTile:
    """The tile for heads of a size: as tuned, or as large as shared memory allows."""
    tile = PromptTile(128, _span(type))
    while (
        tile.rows > _LEAST_SPAN
        and _tile_bytes(tile.rows, tile.span, size, type) > device.shared_memory
    ):
        if tile.rows > 2 * tile.span or tile.span == _LEAST_SPAN:
            tile = PromptTile(tile.rows // 2, tile.span)
        else:
            tile = PromptTile(tile.rows, tile.span // 2)
    return tile


def generation_span(rows: int, size: int, type: KvType, device: Device) -> int:
    """Positions of one step of the loop when decoding, for so many query heads of a size."""
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


def padded_size(size: int) -> int:
    """A head's size as attention holds it."""
    return int(max(16, triton.next_power_of_2(size)))


def prompt_warps(tile: PromptTile) -> int:
    """Warps of 16 queries each, but at least four."""
    return max(4, tile.rows // 16)


def attention_work(memory: DeviceMemory, ops: Sequence[o.Attend], context: int) -> PartWork:
    """Memory for the parts of the past of the tokens of one launch."""
    parts = -(-context // part_positions(context))
    rows = _MAX_TOKENS * parts * max((op.heads for op in ops), default=0)
    width = max((padded_size(op.query.width // op.heads) for op in ops), default=0)
    sizes = (4 * rows * width, 4 * rows, 4 * rows)
    pool = memory.pool(sum(aligned(size) for size in sizes))
    return PartWork(*(pool.take(size).view(torch.float32) for size in sizes))


@dataclass(frozen=True, slots=True)
class LayerCache:
    """A layer's part of the cache, in elements of the storage type."""

    group: int
    pool: torch.Tensor
    scales: torch.Tensor
    block_stride: int
    layer_start: int
    table_stride: int
    form: CacheForm

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
            form=CacheForm(
                size=size,
                padded=padded_size(size),
                side=layout.type.row_bytes(size) * BLOCK_TOKENS // type.itemsize,
                q8=layout.type is KvType.Q8_0,
            ),
        )

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


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """The heads of a layer, and where their keys and values go."""

    heads: Heads
    form: HeadForm
    count: int
    kv_count: int
    cache: LayerCache

    @classmethod
    def of(cls, op: o.StoreKv, context: Context) -> "LayerHeads":
        """The heads that an op stores."""
        cache = LayerCache.of(context.layout, op.kv_layer, context)
        size, values, rope = cache.form.size, context.values, op.rope
        query, key = (
            None if norm is None or _is_whole(norm, size) else norm
            for norm in (op.query_norm, op.key_norm)
        )
        return cls(
            heads=Heads(
                query=values.tensor(op.query),
                key=values.tensor(op.key),
                value=values.tensor(op.value),
                query_norm=_head_norm(query, context),
                key_norm=_head_norm(key, context),
                rope=context.vectors.rope(rope) if rope else RopeTable(),
            ),
            form=HeadForm(
                query_norm=_kind(query),
                key_norm=_kind(key),
                pairs=len(rope.frequencies) if rope else 0,
                interleaved=rope is not None and rope.layout is o.RopeLayout.INTERLEAVED,
            ),
            count=op.query.width // size,
            kv_count=op.key.width // size,
            cache=cache,
        )


def _is_whole(norm: o.Normalization, head_size: int) -> bool:
    """Whether a norm is over all heads together."""
    return norm.weight is None or norm.weight.shape[-1] != head_size


def _kind(norm: o.Normalization | None) -> int:
    return 0 if norm is None else 2 if norm.kind is o.NormKind.LAYER else 1


def _head_norm(norm: o.Normalization | None, context: Context) -> HeadNorm:
    if norm is None or norm.weight is None:
        return HeadNorm()
    stride = norm.weight.shape[-1] if len(norm.weight.shape) > 1 else 0
    return HeadNorm(context.vectors.get(norm.weight), stride, norm.epsilon)


@missing.register
def _(op: o.StoreKv) -> str | None:
    norms = [norm for norm in (op.query_norm, op.key_norm) if norm]
    if any(norm.bias for norm in norms):
        return "norms of heads with biases"
    if any(norm.weight is None for norm in norms):
        return "norms of heads without weights"
    return "norms of heads after RoPE" if op.norms_last else None


@missing.register
def _(op: o.Attend) -> str | None:
    if op.query.width != op.out.width:
        return "attention over latents"
    if op.window and not op.causal:
        return "windows of encoders"
    return "attention in chunks" if op.chunked else None


@launch_of.register
def store_kv(op: o.StoreKv, context: Context) -> Launch:
    """Norm, rotate and store heads; if sequences have one token each, attention does that.

    Norms over all heads together are always computed here.
    """
    layer, rotated = LayerHeads.of(op, context), context.memory.rotated
    size, values = layer.cache.form.size, context.values
    before = [
        norm_rows(context, item, norm, values.tensor(item), item.width)
        for item, norm in ((op.query, op.query_norm), (op.key, op.key_norm))
        if norm is not None and _is_whole(norm, size)
    ]

    def launch(step: Step) -> None:
        for run in before:
            run(step)
        if step.single:
            return
        step.start(
            store_kv_kernel,
            (layer.count + layer.kv_count, step.inputs.tokens),
            heads=layer.heads,
            rotated=rotated,
            cache=layer.cache.view(step.inputs),
            positions=step.inputs.positions,
            sequences=step.inputs.sequences,
            count=layer.count,
            kv_count=layer.kv_count,
            FORM=layer.cache.form,
            HEAD=layer.form,
            num_warps=1,
        )

    return launch


@dataclass(frozen=True, slots=True)
class _AttentionLauncher:
    """The attention of one layer."""

    device: Device
    layer: LayerHeads
    attention: Attention
    rotated: torch.Tensor  # queries that `store_kv` has left
    work: PartWork
    prompt: PromptTile
    generation: GenerationTile
    parts: int  # of a sequence's past

    def run_prompt(self, step: Step) -> None:
        """Tokens of prompts."""
        inputs = step.inputs
        step.start(
            attend_prompt_kernel,
            (self.attention.heads, inputs.tile_count),
            query=self.rotated,
            attention=self.attention,
            cache=self.layer.cache.view(inputs),
            tiles=inputs.tiles,
            positions=inputs.positions,
            FORM=self.layer.cache.form,
            TILE=self.prompt,
            num_warps=prompt_warps(self.prompt),
            enable_fp_fusion=False,  # masked and whole tiles round alike
        )

    def run_generation(self, step: Step) -> None:
        """Decoded tokens; if every sequence has one, heads are rotated and stored here, too."""
        inputs, single = step.inputs, step.single
        layer, form = self.layer, self.layer.cache.form
        heads = layer.heads if single else layer.heads._replace(query=self.rotated)
        for first in range(0, inputs.tokens, _MAX_TOKENS):
            count = min(_MAX_TOKENS, inputs.tokens - first)
            step.start(
                attend_generation_kernel,
                (self.parts, layer.kv_count, count),
                heads=heads,
                attention=self.attention,
                cache=layer.cache.view(inputs),
                work=self.work,
                first=first,
                positions=inputs.positions,
                sequences=inputs.sequences,
                FORM=form,
                TILE=self.generation,
                HEAD=layer.form,
                STORE=single,
                num_warps=8,
                **self.device.order(),
            )
            if self.parts > 1:
                step.start(
                    join_parts_kernel,
                    (self.attention.heads, count),
                    attention=self.attention,
                    work=self.work,
                    first=first,
                    parts=self.parts,
                    positions=inputs.positions,
                    SIZE=form.size,
                    PADDED=form.padded,
                    PART=self.generation.part,
                    num_warps=4,
                    **self.device.order(),
                )


@launch_of.register
def attend(op: o.Attend, context: Context) -> Launch:
    """Attention; if sequences have one token each, it stores their heads, too."""
    plan, device, type = context.plan, context.device, context.layout.type
    layer = LayerHeads.of(context.stores[op.kv_layer], context)
    group, part = op.heads // op.kv_heads, part_positions(plan.context)
    rows = max(16, triton.next_power_of_2(group))
    launcher = _AttentionLauncher(
        device=device,
        layer=layer,
        attention=Attention(
            heads=op.heads,
            group=group,
            scale=op.scale,
            cap=op.softcap if op.softcap > 0 else None,
            window=op.window,
            sinks=context.vectors.get(op.sinks),
            out=context.values.tensor(op.out),
            out_scale=HALF_SCALE,
        ),
        rotated=context.memory.rotated,
        work=context.memory.attention,
        prompt=plan.query_tile,
        generation=GenerationTile(
            rows, generation_span(rows, layer.cache.form.size, type, device), part
        ),
        parts=-(-plan.context // part),
    )

    def launch(step: Step) -> None:
        if step.phase is ExecutionPhase.PROMPT:
            launcher.run_prompt(step)
        else:
            launcher.run_generation(step)

    return launch
