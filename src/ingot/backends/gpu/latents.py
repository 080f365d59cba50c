"""Multi-head latent attention: rows of the cache that are keys and values of all heads at once.

The matrices that make keys and values of a latent are applied to queries and to mixed latents
instead (`HeadLinear`), for prompts too, so what is attended to is never expanded.
"""

from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.cache_layers import LayerCache, launches, part_positions
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.attend_generation import (
    GenerationTile,
    PartWork,
    join_parts_kernel,
)
from ingot.backends.gpu.kernels.attend_prompt import PromptTile
from ingot.backends.gpu.kernels.attention import CAUSAL, Attention
from ingot.backends.gpu.kernels.heads import HeadForm, HeadNorm, RopeTable
from ingot.backends.gpu.kernels.latents import (
    LatentForm,
    LatentHeads,
    attend_latents_generation_kernel,
    attend_latents_prompt_kernel,
    store_latents_kernel,
)
from ingot.backends.gpu.lowering import Context, Launch, Step
from ingot.backends.gpu.values import HALF_SCALE
from ingot.graph import KvLayer
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType

_MOST_ROWS = 64  # queries of a program: more would not leave registers for what they mix
_MOST_SPAN = 32  # positions of one step of its loop
_LEAST = 16  # of both: what a product on the matrix units takes
WARPS = 8
JOIN_WARPS = 16  # of a program that joins parts of so long rows


def is_latent(kv_layer: int, context: Context) -> bool:
    """Whether a layer of the cache keeps latents."""
    return context.plan.graph.kv_layers[kv_layer].shared_value > 0


def missing_of_latents(op: o.Attend) -> str | None:
    """What no kernel computes of an attention over latents."""
    special = op.window or op.sinks or not op.causal or op.bias or op.slopes
    plain = op.kv_heads == 1 and op.seen is o.SeenPart.ALL and not special
    return None if plain else "attention over latents but for the plain one"


def latent_tile(form: LatentForm, rows: int, type: KvType, device: Device) -> PromptTile:
    """At most so many queries of a program, and the positions of a step of its loop."""
    tile = PromptTile(min(rows, _MOST_ROWS), _MOST_SPAN)
    while (
        _tile_bytes(form, tile, type) > device.shared_memory and max(tile.rows, tile.span) > _LEAST
    ):
        if tile.rows > tile.span or tile.span == _LEAST:
            tile = PromptTile(tile.rows // 2, tile.span)
        else:
            tile = PromptTile(tile.rows, tile.span // 2)
    return tile


def _tile_bytes(form: LatentForm, tile: PromptTile, type: KvType) -> int:
    """Shared memory of queries, rows of the cache and scores, at most (see compile_kernels.py)."""
    size = form.rotary_padded + form.latent_padded
    number = 4 if type is KvType.F32 else 2
    stored = 1 if type in (KvType.Q8_0, KvType.FP8) else 0  # as they are read, beside the halves
    return number * tile.rows * (size + tile.span) + (2 * number + stored) * tile.span * size


def prompt_rows(layer: KvLayer, type: KvType, device: Device) -> int:
    """Queries of a tile of a prompt, if a model has such a layer."""
    form = LatentForm(layer.key_width, layer.value_width, 0, q8=False)
    return latent_tile(form, _MOST_ROWS, type, device).rows


def decoded_rows(heads: int) -> int:
    """The same when decoding: heads of one token, filled up, if a program has room for all."""
    return max(_LEAST, int(triton.next_power_of_2(heads)))


def latent_form(cache: LayerCache, layer: KvLayer) -> LatentForm:
    """What kernels are compiled for."""
    return LatentForm(layer.key_width, layer.value_width, cache.side, cache.q8)


def store_latents(op: o.StoreKv, context: Context) -> Launch:
    """Rotate queries and keys; queries become halves, rows go to the cache."""
    assert op.query is not None, "such an op is refused"
    cache = LayerCache.of(context.layout, op.kv_layer, context)
    form = latent_form(cache, context.plan.graph.kv_layers[op.kv_layer])
    values, rope, rotated = context.values, op.rope, context.memory.rotated
    heads = LatentHeads(
        query=values.tensor(op.query),
        key=values.tensor(op.key),
        latent=values.tensor(op.value),
        norm=HeadNorm(),
        rope=context.vectors.rope(rope) if rope else RopeTable(),
    )
    head = HeadForm(
        query_norm=0,
        key_norm=0,
        pairs=len(rope.frequencies) if rope else 0,
        interleaved=rope is not None and rope.layout is o.RopeLayout.INTERLEAVED,
    )
    count = op.query.width // form.size

    def launch(step: Step) -> None:
        step.start(
            store_latents_kernel,
            (count + 1, step.inputs.tokens),
            heads=heads,
            rotated=rotated,
            positions=step.inputs.positions,
            sequences=step.inputs.sequences,
            cache=cache.view(step.inputs),
            count=count,
            FORM=form,
            HEAD=head,
            num_warps=2,
            **context.order,
        )

    return launch


@dataclass(frozen=True, slots=True)
class _LatentLauncher:
    """The attention of one layer."""

    device: Device
    cache: LayerCache
    form: LatentForm
    attention: Attention
    rotated: torch.Tensor  # queries that `store_latents` has left
    work: PartWork
    prompt: PromptTile
    generation: GenerationTile
    parts: int  # of a sequence's past

    def run_prompt(self, step: Step) -> None:
        """Tokens of prompts."""
        inputs = step.inputs
        step.start(
            attend_latents_prompt_kernel,
            (self.attention.heads, inputs.tile_count),
            query=self.rotated,
            tiles=inputs.tiles,
            positions=inputs.positions,
            cache=self.cache.view(inputs),
            attention=self.attention,
            FORM=self.form,
            TILE=self.prompt,
            num_warps=WARPS,
            enable_fp_fusion=False,  # masked and whole tiles round alike
        )

    def run_generation(self, step: Step) -> None:
        """Decoded tokens."""
        inputs, tile, heads = step.inputs, self.generation, self.attention.heads
        for first, count in launches(self.work, heads, self.parts, inputs.tokens):
            step.start(
                attend_latents_generation_kernel,
                (self.parts, triton.cdiv(heads, tile.rows), count),
                query=self.rotated,
                first=first,
                positions=inputs.positions,
                sequences=inputs.sequences,
                cache=self.cache.view(inputs),
                attention=self.attention,
                work=self.work,
                FORM=self.form,
                TILE=tile,
                num_warps=WARPS,
                **self.device.order(),
            )
            if self.parts > 1:
                step.start(
                    join_parts_kernel,
                    (heads, count),
                    attention=self.attention,
                    work=self.work,
                    first=first,
                    parts=self.parts,
                    positions=inputs.positions,
                    encoded=None,
                    SIZE=self.form.latent,
                    PADDED=self.form.latent_padded,
                    PART=tile.part,
                    SEEN=CAUSAL.value,
                    num_warps=JOIN_WARPS,
                    **self.device.order(),
                )


def latent_attention(op: o.Attend, context: Context) -> Attention:
    """What an attention over latents is."""
    return Attention(
        heads=op.heads,
        group=op.heads,
        scale=op.scale,
        cap=op.softcap if op.softcap > 0 else None,
        window=0,
        sinks=None,
        bias=None,
        reach=0,
        slopes=None,
        out=context.values.tensor(op.out),
        out_scale=HALF_SCALE,
    )


def attend_latents(op: o.Attend, context: Context) -> Launch:
    """Attention over latents."""
    plan, device, type = context.plan, context.device, context.layout.type
    cache = LayerCache.of(context.layout, op.kv_layer, context)
    form = latent_form(cache, plan.graph.kv_layers[op.kv_layer])
    decoded = latent_tile(form, decoded_rows(op.heads), type, device)
    part = part_positions(plan.context, plan.sequences)
    launcher = _LatentLauncher(
        device=device,
        cache=cache,
        form=form,
        attention=latent_attention(op, context),
        rotated=context.memory.rotated,
        work=context.memory.attention,
        prompt=latent_tile(form, plan.query_tile.rows, type, device),
        generation=GenerationTile(decoded.rows, decoded.span, part),
        parts=-(-plan.context // part),
    )

    def launch(step: Step) -> None:
        if step.phase is ExecutionPhase.PROMPT:
            launcher.run_prompt(step)
        else:
            launcher.run_generation(step)

    return launch
