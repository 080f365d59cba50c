"""What happens between the linear layers of a layer: heads, KV cache, attention.

Attention over latents is in `latents.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.cache_layers import (
    LayerCache,
    launches,
    padded_size,
    part_positions,
)
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.indexer import attend_chosen
from ingot.backends.gpu.kernels.attend_generation import (
    GenerationTile,
    PartWork,
    attend_generation_kernel,
    join_parts_kernel,
)
from ingot.backends.gpu.kernels.attend_prompt import PromptTile, attend_prompt_kernel
from ingot.backends.gpu.kernels.attention import (
    BOTH_WAYS,
    CAUSAL,
    CHUNKED,
    DECODED,
    ENCODED,
    Attention,
)
from ingot.backends.gpu.kernels.heads import (
    HeadForm,
    HeadNorm,
    Heads,
    RopeTable,
    store_kv_kernel,
)
from ingot.backends.gpu.latents import (
    attend_latents,
    is_latent,
    missing_of_latents,
    prompt_rows,
    store_latents,
)
from ingot.backends.gpu.lowering import Context, Launch, Step, launch_of, missing
from ingot.backends.gpu.rows import norm_rows
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import KvLayer
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType

_FEWEST_STRIPES = 4  # programs that share the parts of a long text beside many others
_PROGRAMS_PER_MULTIPROCESSOR = 16  # that are worth starting
_LONG_HEAD = 256
_LEAST_SPAN = 16  # what a product on the matrix units takes


def query_tile(layers: Sequence[KvLayer], type: KvType, device: Device) -> PromptTile:
    """The tile of a model's prompts: what all its layers can take."""
    latents = [layer for layer in layers if layer.shared_value]
    largest = max((layer.head_size for layer in layers if not layer.shared_value), default=1)
    tile = prompt_tile(largest, type, device)
    return replace(
        tile, rows=min(tile.rows, *(prompt_rows(layer, type, device) for layer in latents), 1 << 30)
    )


def prompt_tile(size: int, type: KvType, device: Device) -> PromptTile:
    """The tile for heads of a size: as tuned, or as large as shared memory allows."""
    tile = PromptTile(128, _span(type))
    if padded_size(size) > _LONG_HEAD:  # registers for what is mixed, and memory for two steps
        tile = PromptTile(64, 32)
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


def join_warps(padded: int) -> int:
    """Of a program that joins the parts of a head of that size."""
    return max(1, padded // 128)


def prompt_warps(tile: PromptTile, padded: int) -> int:
    """Warps of 16 queries each, but at least four; of 8 if heads are that long."""
    return max(4, tile.rows // 16) * (1 if padded <= _LONG_HEAD else 2)


@dataclass(frozen=True, slots=True)
class LayerHeads:
    """The heads of a layer, and where their keys and values go."""

    heads: Heads
    form: HeadForm
    count: int  # of queries
    kv_count: int
    cache: LayerCache

    @classmethod
    def of(cls, op: o.StoreKv, context: Context) -> "LayerHeads":
        """The heads that an op stores; without queries, if another graph reads them."""
        cache = LayerCache.of(context.layout, op.kv_layer, context)
        size, values, rope = cache.form.size, context.values, op.rope
        query, key = (
            None if norm is None or _is_whole(norm, size) else norm
            for norm in (op.query_norm, op.key_norm)
        )
        return cls(
            heads=Heads(
                query=values.tensor(op.query or op.key),
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
                norms_last=op.norms_last,
            ),
            count=op.query.width // size if op.query else 0,
            kv_count=op.key.width // size,
            cache=cache,
        )

    @classmethod
    def of_encoded(cls, op: o.Attend, context: Context) -> "LayerHeads":
        """The heads of an attention over what another graph has stored: queries alone."""
        query = context.values.tensor(op.query)
        return cls(
            heads=Heads(query, query, query, HeadNorm(), HeadNorm(), RopeTable()),
            form=HeadForm(query_norm=0, key_norm=0, pairs=0, interleaved=False),
            count=op.heads,
            kv_count=op.kv_heads,
            cache=LayerCache.of(context.layout, op.kv_layer, context),
        )


def _is_whole(norm: o.Normalization, head_size: int) -> bool:
    """Whether a norm is over all heads together."""
    return norm.run != head_size or norm.bias is not None


def _kind(norm: o.Normalization | None) -> int:
    return 0 if norm is None else 2 if norm.kind is o.NormKind.LAYER else 1


def _head_norm(norm: o.Normalization | None, context: Context) -> HeadNorm:
    if norm is None:
        return HeadNorm()
    stride = norm.run if norm.weight is not None and len(norm.weight.shape) > 1 else 0
    return HeadNorm(context.vectors.get(norm.weight), stride, norm.epsilon)


@missing.register
def _(op: o.StoreKv) -> str | None:
    pairs = ((op.query_norm, op.query), (op.key_norm, op.key))
    norms = [(norm, value) for norm, value in pairs if norm and value]
    if any(norm.bias and norm.run != value.width for norm, value in norms):
        return "norms of heads with biases"
    over_all = bool(norms) and all(norm.run == value.width for norm, value in norms)
    return "norms of all heads together after RoPE" if op.norms_last and over_all else None


@missing.register
def _(op: o.Attend) -> str | None:
    return missing_of_latents(op) if op.query.width != op.out.width else None


@launch_of.register
def store_kv(op: o.StoreKv, context: Context) -> Launch:
    """Norm, rotate and store heads; if sequences have one token each, attention does that.

    Norms over all heads together are always computed here.
    """
    if is_latent(op.kv_layer, context):
        return store_latents(op, context)
    layer, rotated = LayerHeads.of(op, context), context.memory.rotated
    size, values = layer.cache.form.size, context.values
    before = [
        norm_rows(context, item, norm, values.tensor(item), item.width)
        for item, norm in ((op.query, op.query_norm), (op.key, op.key_norm))
        if item is not None and norm is not None and _is_whole(norm, size)
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
    query: torch.Tensor  # after norm and RoPE: halves that `store_kv` has left, or floats
    stores: bool  # whether it stores keys and values if every sequence has one token
    work: PartWork
    prompt: PromptTile
    generation: GenerationTile
    parts: int  # of a sequence's past
    seen: int  # which positions tokens see

    def encoded(self, step: Step) -> torch.Tensor | None:
        """The positions that an encoder wrote, if that matters."""
        return step.inputs.encoded if self.seen in (ENCODED.value, DECODED.value) else None

    def run_prompt(self, step: Step) -> None:
        """Tokens of prompts."""
        inputs = step.inputs
        step.start(
            attend_prompt_kernel,
            (self.attention.heads, inputs.tile_count),
            query=self.query,
            attention=self.attention,
            cache=self.layer.cache.view(inputs),
            tiles=inputs.tiles,
            positions=inputs.positions,
            FORM=self.layer.cache.form,
            TILE=self.prompt,
            SEEN=self.seen,
            num_warps=prompt_warps(self.prompt, self.layer.cache.form.padded),
            enable_fp_fusion=False,  # masked and whole tiles round alike
        )

    def run_generation(self, step: Step) -> None:
        """Decoded tokens; if every sequence has one, heads are rotated and stored here, too."""
        inputs, single = step.inputs, step.single and self.stores
        layer, form = self.layer, self.layer.cache.form
        heads = layer.heads if single else layer.heads._replace(query=self.query)
        heads_of_token = self.attention.heads
        for first, count in launches(self.work, heads_of_token, self.parts, inputs.tokens):
            step.start(
                attend_generation_kernel,
                (self._stripes(count), layer.kv_count, count),
                heads=heads,
                attention=self.attention,
                cache=layer.cache.view(inputs),
                parts=self.parts,
                work=self.work,
                first=first,
                positions=inputs.positions,
                sequences=inputs.sequences,
                encoded=self.encoded(step),
                FORM=form,
                TILE=self.generation,
                HEAD=layer.form,
                STORE=single,
                SEEN=self.seen,
                num_warps=4,
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
                    encoded=self.encoded(step),
                    SIZE=form.size,
                    PADDED=form.padded,
                    PART=self.generation.part,
                    SEEN=self.seen,
                    num_warps=join_warps(form.padded),
                    **self.device.order(),
                )

    def _stripes(self, tokens: int) -> int:
        """Programs of a key head and a token; more than the device holds would only end."""
        wanted = self.device.multiprocessors * _PROGRAMS_PER_MULTIPROCESSOR
        most = wanted // (self.layer.kv_count * tokens)
        return min(self.parts, max(_FEWEST_STRIPES, most))


def _seen_code(op: o.Attend) -> int:
    if not op.causal:
        return int(BOTH_WAYS.value)
    if op.seen is not o.SeenPart.ALL:
        return int(ENCODED.value if op.seen is o.SeenPart.ENCODED else DECODED.value)
    return int(CHUNKED.value if op.chunked else CAUSAL.value)


def _distance_bias(op: o.Attend, context: Context) -> torch.Tensor | None:
    """What distances add, [heads, distances], flat."""
    if op.bias is None:
        return None
    table = context.vectors.get(op.bias.weight)
    assert table is not None
    buckets = torch.tensor(op.bias.buckets, device=table.device)
    return table.view(op.bias.weight.shape)[buckets].T.contiguous().view(-1)


@launch_of.register
def attend(op: o.Attend, context: Context) -> Launch:
    """Attention; if sequences have one token each, it stores their heads, too.

    Where a layer reads what another has stored, its queries come as they are.
    """
    if op.chosen:
        return attend_chosen(op, op.chosen, context)
    if is_latent(op.kv_layer, context):
        return attend_latents(op, context)
    plan, device, type = context.plan, context.device, context.layout.type
    if op.seen is o.SeenPart.ENCODED:
        layer, stores = LayerHeads.of_encoded(op, context), False
    else:
        store = context.stores[op.kv_layer]
        layer, stores = LayerHeads.of(store, context), store.query == op.query
    group, part = op.heads // op.kv_heads, part_positions(plan.context, plan.sequences)
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
            bias=_distance_bias(op, context),
            reach=op.bias.reach if op.bias else 0,
            slopes=torch.tensor(op.slopes, device=device.torch) if op.slopes else None,
            out=context.values.tensor(op.out),
            out_scale=HALF_SCALE,
        ),
        query=context.memory.rotated if stores else context.values.tensor(op.query),
        stores=stores,
        work=context.memory.attention,
        prompt=plan.query_tile,
        generation=GenerationTile(
            rows, generation_span(rows, layer.cache.form.size, type, device), part
        ),
        parts=-(-plan.context // part),
        seen=_seen_code(op),
    )

    def launch(step: Step) -> None:
        if step.phase is ExecutionPhase.PROMPT:
            launcher.run_prompt(step)
        else:
            launcher.run_generation(step)

    return launch
