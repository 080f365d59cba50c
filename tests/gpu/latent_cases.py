"""Kernels of multi-head latent attention, with arguments as they are launched."""

from collections.abc import Iterator

import torch

from gpu.kernel_case import (
    EVEN,
    FLOATS,
    HALVES,
    INTS,
    ODD,
    PAIRS,
    REAL,
    WORDS,
    KernelCase,
    Pointer,
    optional,
    out_of,
)
from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.head_linear import HeadTile
from ingot.backends.gpu.indexer import CHOICE_SPAN, CHOICE_WARPS
from ingot.backends.gpu.kernels.attend_generation import (
    GenerationTile,
    PartWork,
    join_parts_kernel,
)
from ingot.backends.gpu.kernels.attention import CAUSAL, Attention
from ingot.backends.gpu.kernels.head_linear import HeadMap, head_linear_kernel
from ingot.backends.gpu.kernels.heads import HeadForm, HeadNorm, RopeTable
from ingot.backends.gpu.kernels.indexer import (
    attend_chosen_kernel,
    choose_kernel,
    score_positions_kernel,
)
from ingot.backends.gpu.kernels.kv_cache import CacheView
from ingot.backends.gpu.kernels.latents import (
    LatentForm,
    LatentHeads,
    attend_latents_generation_kernel,
    attend_latents_prompt_kernel,
    store_latents_kernel,
)
from ingot.backends.gpu.kernels.products import Rows
from ingot.backends.gpu.kernels.weights import Weights
from ingot.backends.gpu.latents import JOIN_WARPS, WARPS, decoded_rows, latent_tile
from ingot.backends.gpu.planes import PlaneForm, PlaneSizes
from ingot.graph.kv_type import KvType

STORED = {
    KvType.F32: torch.float32,
    KvType.F16: torch.float16,
    KvType.Q8_0: torch.int8,
    KvType.FP8: torch.uint8,
}
# Heads, latent, rotated part, storage: DeepSeek's, MiniCPM 3's, and small ones.
SHAPES = [
    (128, 512, 64, KvType.F16),
    (16, 512, 64, KvType.Q8_0),
    (40, 256, 32, KvType.FP8),
    (3, 20, 6, KvType.F32),
]


def latent_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """Rows of the cache, attention to them, and the matrices of heads."""
    work = PartWork(FLOATS, FLOATS, FLOATS)
    for heads, latent, rotary, kind in SHAPES:
        plain = kind is KvType.F32
        form = LatentForm(rotary, latent, EVEN, q8=kind is KvType.Q8_0)
        cache = CacheView(INTS, ODD, Pointer(STORED[kind]), HALVES, EVEN, EVEN)
        rope = RopeTable() if plain else RopeTable(FLOATS, FLOATS)
        head = HeadForm(0, 0, pairs=0 if plain else rotary // 2, interleaved=not plain)
        shared = {"positions": INTS, "cache": cache, "FORM": form}
        stored = {"heads": LatentHeads(FLOATS, FLOATS, FLOATS, HeadNorm(), rope)}
        stored |= {"rotated": HALVES, "sequences": INTS, "count": ODD, "HEAD": head}
        yield KernelCase(f"store latents {kind}", store_latents_kernel, shared | stored, 2)
        attention = _attention(cap=plain, half=not plain)
        asked = {"query": HALVES, "attention": attention}
        tile = latent_tile(form, 64, kind, device)
        yield KernelCase(
            f"attend latents prompt {kind}",
            attend_latents_prompt_kernel,
            shared | asked | {"tiles": INTS, "TILE": tile},
            WARPS,
            {"enable_fp_fusion": False},
        )
        tile = latent_tile(form, decoded_rows(heads), kind, device)
        step = {"first": ODD, "sequences": INTS, "work": work}
        step |= {"TILE": GenerationTile(tile.rows, tile.span, 128)}
        yield KernelCase(
            f"attend latents generation {kind}",
            attend_latents_generation_kernel,
            shared | asked | step,
            WARPS,
        )
        yield from _chosen_cases(form, heads, kind, cache, attention, device)
    choice = {"scores": FLOATS, "chosen": FLOATS, "stride": EVEN, "first": EVEN}
    choice |= {"positions": INTS, "choices": EVEN, "SPAN": CHOICE_SPAN}
    yield KernelCase("choose", choose_kernel, choice, CHOICE_WARPS)
    joined = {"attention": _attention(cap=False, half=True), "work": work, "first": ODD}
    joined |= {"parts": ODD, "positions": INTS, "SIZE": 512, "PADDED": 512, "PART": 128}
    joined |= {"SEEN": CAUSAL.value, "encoded": None}
    yield KernelCase("join parts of latents", join_parts_kernel, joined, JOIN_WARPS)
    yield from _head_cases(device, few)


def _chosen_cases(
    form: LatentForm,
    heads: int,
    kind: KvType,
    cache: CacheView,
    attention: Attention,
    device: Device,
) -> Iterator[KernelCase]:
    """Scores of positions, and attention to those that are chosen."""
    tile = latent_tile(form, decoded_rows(heads), kind, device)
    shared = {"query": HALVES, "positions": INTS, "sequences": INTS, "cache": cache}
    shared |= {"choices": EVEN, "ROWS": tile.rows, "SPAN": tile.span, "FORM": form}
    scored = {"head_weights": FLOATS, "scores": FLOATS, "stride": EVEN, "first": EVEN}
    yield KernelCase(
        f"score positions {kind}", score_positions_kernel, shared | scored | {"heads": EVEN}, WARPS
    )
    asked = {"chosen": FLOATS, "attention": attention}
    yield KernelCase(f"attend chosen {kind}", attend_chosen_kernel, shared | asked, WARPS)


def _head_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """One token, some and a prompt; with and without elements that are kept."""
    for form, columns, tokens, phase in (
        (PlaneForm(8), 128, 1, ExecutionPhase.GENERATION),
        (PlaneForm(4, high=1, minimum=True), 512, few, ExecutionPhase.GENERATION),
        (PlaneForm(4, high=2, fine=True), 512, 64, ExecutionPhase.GENERATION),
        (PlaneForm(16), 128, 512, ExecutionPhase.PROMPT),
    ):
        kept, tile = columns == 128, HeadTile.of(tokens, phase, device)
        sizes = PlaneSizes.of(form, 4096, columns)
        heads = HeadMap(
            factor=REAL,
            source=optional(kept),
            size=EVEN,
            columns=EVEN,
            kept=EVEN if kept else 0,
            results=EVEN,
            out=out_of(not kept),
            half_scale=REAL,
        )
        arguments = {
            "inputs": Rows(HALVES, EVEN, EVEN),
            "tokens": ODD,
            "weights": Weights(WORDS, WORDS, PAIRS, ODD, EVEN),
            "heads": heads,
            "KEPT": 64 if kept else 1,
            "TILE": tile.products(sizes, device, even=tokens > 1),
            "FORM": form,
            "ASM": device.assembly,
        }
        name = f"head linear {form} {tile.rows}x{tile.columns}"
        yield KernelCase(name, head_linear_kernel, arguments, tile.warps)


def _attention(*, cap: bool, half: bool) -> Attention:
    return Attention(
        heads=EVEN,
        group=EVEN,
        scale=REAL,
        cap=REAL if cap else None,
        window=0,
        sinks=None,
        bias=None,
        reach=0,
        slopes=None,
        out=out_of(half),
        out_scale=REAL,
    )
