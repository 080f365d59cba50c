"""Every kernel with arguments as it is launched: bundles of pointers and numbers, and constants.

Used to compile for devices that are not there, and to look at what the compiler made.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import torch
import triton.language as tl

from gpu.kernel_case import (
    DOUBLES,
    EVEN,
    FLOATS,
    HALVES,
    INTS,
    LONGS,
    ODD,
    PAIRS,
    REAL,
    WORDS,
    KernelCase,
    Pointer,
    optional,
    out_of,
)
from gpu.latent_cases import latent_cases
from gpu.state_cases import state_cases
from gpu.stream_cases import stream_cases
from ingot.backends.gpu.attention import generation_span, prompt_tile, prompt_warps
from ingot.backends.gpu.cache_layers import padded_size
from ingot.backends.gpu.device import Device, imagined_device
from ingot.backends.gpu.experts import FEW_COLUMNS
from ingot.backends.gpu.kernels.adapters import (
    Low,
    Tables,
    Target,
    Uses,
    activate_rows_kernel,
    adapter_down_kernel,
    adapter_token_kernel,
    adapter_up_kernel,
)
from ingot.backends.gpu.kernels.attend_generation import (
    GenerationTile,
    PartWork,
    attend_generation_kernel,
    join_parts_kernel,
)
from ingot.backends.gpu.kernels.attend_prompt import attend_prompt_kernel
from ingot.backends.gpu.kernels.attention import (
    BOTH_WAYS,
    CAUSAL,
    CHUNKED,
    DECODED,
    ENCODED,
    Attention,
)
from ingot.backends.gpu.kernels.elementwise import (
    Temper,
    Xielu,
    activate_kernel,
    add_kernel,
    pick_heads_kernel,
    temper_kernel,
    xielu_kernel,
)
from ingot.backends.gpu.kernels.epilogue import Epilogue
from ingot.backends.gpu.kernels.experts import (
    Groups,
    NextNorm,
    Router,
    expert_kernel,
    group_kernel,
    mix_kernel,
    route_kernel,
)
from ingot.backends.gpu.kernels.heads import (
    HeadForm,
    HeadNorm,
    Heads,
    RopeTable,
    store_kv_kernel,
)
from ingot.backends.gpu.kernels.kv_cache import CacheForm, CacheView
from ingot.backends.gpu.kernels.linear import Matrix, Split, linear_kernel, linear_pair_kernel
from ingot.backends.gpu.kernels.linear_wide import linear_wide_kernel
from ingot.backends.gpu.kernels.norm_runs import norm_runs_kernel
from ingot.backends.gpu.kernels.products import ProductTile, Rows
from ingot.backends.gpu.kernels.rows import (
    Embedding,
    Norm,
    embed_kernel,
    gate_rows_kernel,
    norm_kernel,
    select_kernel,
    softcap_kernel,
)
from ingot.backends.gpu.kernels.sample import sample_kernel, shortlist_kernel
from ingot.backends.gpu.kernels.weights import Weights
from ingot.backends.gpu.linear import (
    Cut,
    stages_of,
    unroll_of,
    wide_tile,
)
from ingot.backends.gpu.planes import PlaneForm, PlaneSizes, form_of
from ingot.gguf import GgmlType
from ingot.graph.kv_type import KvType

FORMS = {
    "q4_0": PlaneForm(4),
    "q4_k": PlaneForm(4, minimum=True),
    "q2_k": PlaneForm(4, fine=True, minimum=True),
    "q3_k": PlaneForm(4, fine=True),
    "q5_0": PlaneForm(4, high=1),
    "q5_k": PlaneForm(4, high=1, minimum=True),
    "q6_k": PlaneForm(4, high=2, fine=True),
    "q8_0": PlaneForm(8),
    "f16": PlaneForm(16),
    **{
        name: form_of(GgmlType[name.upper()])
        for name in ("iq4_xs", "mxfp4", "nvfp4", "iq2_xxs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_m")
    },
}
INPUTS = Rows(HALVES, EVEN, EVEN)
WEIGHTS = Weights(WORDS, WORDS, PAIRS, ODD, EVEN)
SPLIT = Split(ODD, FLOATS, INTS)
GROUPS = Groups(INTS, INTS, INTS, INTS, INTS)

# What may follow the sums of a linear layer: parts, bias, residual, activation, gated, halves.
EPILOGUES = [
    (3, True, False, 0, False, False),
    (1, False, False, 1, True, True),
    (1, False, True, 0, False, False),
    (1, True, False, 2, False, True),
    (2, False, False, 0, False, False),
    (1, False, False, 3, True, True),
    (1, True, True, 0, False, False),
    (1, False, False, 4, False, True),
    (1, True, False, 5, True, True),
    (1, False, False, 6, False, False),
    (1, False, False, 7, True, True),
]
EpilogueOptions = tuple[int, bool, bool, int, bool, bool]


def _epilogue(values: EpilogueOptions) -> dict[str, Any]:
    parts, bias, residual, activation, gated, half = values
    places = (ODD,) * parts
    epilogue = Epilogue(
        factor=REAL,
        bias=optional(bias),
        residual=optional(residual),
        out=out_of(half),
        half_scale=REAL,
        starts=places,
        widths=places,
        bases=places,
    )
    return {"epilogue": epilogue, "ACTIVATION": activation, "GATED": gated}


def linear_case(
    form: PlaneForm,
    *,
    device: Device,
    block: int,
    columns: int,
    warps: int,
    splits: int = 1,
    chunks: int = 64,
    even: bool = True,
    epilogue: EpilogueOptions = EPILOGUES[0],
) -> KernelCase:
    """A linear layer with rows of so many chunks, as it is launched."""
    sizes = PlaneSizes.of(form, 4096, 64 * chunks)
    tile = ProductTile(
        rows=block,
        columns=columns,
        stages=stages_of(sizes, block, columns, 8, device),
        even=even,
        unroll=unroll_of(sizes),
        splits=splits,
    )
    arguments = {
        "inputs": INPUTS,
        "tokens": ODD,
        "weights": WEIGHTS,
        "split": SPLIT,
        "TILE": tile,
        "FORM": form,
        "ASM": device.assembly,
        **_epilogue(epilogue),
    }
    name = f"linear {form} {block}x{columns} splits={splits} {epilogue}"
    return KernelCase(name, linear_kernel, arguments, warps)


def linear_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """Every form for one token, with all that may follow; then more tokens."""
    for form, epilogue in zip(FORMS.values(), cycle(EPILOGUES), strict=False):
        yield linear_case(
            form, device=device, block=32, columns=few, warps=1, splits=4, epilogue=epilogue
        )
    nibbles = FORMS["q4_k"]
    for chunks in (63, 65):  # steps of three chunks, and of one
        yield linear_case(
            nibbles, device=device, block=32, columns=few, warps=1, chunks=chunks, even=False
        )
    tiles = [(64, 8, 2, 4)] if device.assembly else []
    for block, columns, warps, splits in [
        *tiles,
        (128, 16, 4, 2),
        (128, 64, 4, 1),
        (128, 64, 8, 1),
    ]:
        yield linear_case(
            nibbles, device=device, block=block, columns=columns, warps=warps, splits=splits
        )
    # The largest: half floats in steps of three chunks.
    yield linear_case(
        FORMS["f16"], device=device, block=128, columns=64, warps=8, chunks=45, even=False
    )
    yield from wide_cases(device)


def wide_cases(device: Device) -> Iterator[KernelCase]:
    """Every form with and without shares."""
    for (name, form), epilogue in zip(FORMS.items(), cycle(EPILOGUES)):
        sizes = PlaneSizes.of(form, EVEN, EVEN)
        for shared in (False, True):
            cut = Cut.of(sizes, device, shared)
            tile = wide_tile(sizes, cut, EVEN, epilogue[0] == 1, device)
            arguments = {"inputs": INPUTS, "tokens": ODD, "first": 0, "weights": WEIGHTS}
            arguments |= {"split": SPLIT, "TILE": tile, "FORM": form, "ASM": device.assembly}
            arguments |= _epilogue(epilogue)
            yield KernelCase(f"linear wide {name} {shared}", linear_wide_kernel, arguments, 8)


def pair_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """Two forms that read the same input."""
    for block, columns, even in ((32, few, True), (128, 32, False)):
        forms = ("q4_k", "q6_k") if even else ("q6_k", "q4_k")
        arguments: dict[str, Any] = {"inputs": INPUTS, "tokens": ODD}
        arguments |= {"programs": ODD, "ASM": device.assembly}
        for side, name, parts in zip("AB", forms, (2, 1), strict=True):
            sizes = PlaneSizes.of(FORMS[name], 4096, 4096)
            epilogue = _epilogue((parts, even, False, 0, False, False))["epilogue"]
            arguments[side.lower()] = Matrix(WEIGHTS, SPLIT, epilogue)
            arguments[f"FORM_{side}"] = FORMS[name]
            arguments[f"TILE_{side}"] = ProductTile(
                rows=block,
                columns=columns,
                stages=stages_of(sizes, block, columns, 8, device),
                even=even,
                unroll=unroll_of(sizes),
                splits=5,
            )
        name = f"linear pair {block}x{columns}"
        yield KernelCase(name, linear_pair_kernel, arguments, block // 32)


def expert_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """The choice, the order of tokens, products for one token, some and many, and the mix."""
    for gating, groups in ((0, 1), (1, 1), (2, 1), (3, 1), (0, 4), (1, 8)):
        arguments = {
            "scores": FLOATS,
            "bias": optional(gating == 1),
            "expert_scales": optional(gating == 2),
            "choice": FLOATS,
            "positions": INTS,
            "groups": GROUPS,
            "experts": ODD,
            "scale": REAL,
            "near": REAL,
            "ROUTER": Router(
                128,
                used=8,
                slots=8,
                gating=gating,
                normalize=gating == 0,
                groups=groups,
                groups_used=groups // 2,
                group_best=2,
                group_slots=groups,
                group_room=128 // groups,
            ),
            "COUNTED": gating > 0,
            "SELECTED": gating == 2,
        }
        yield KernelCase(f"route {gating} {groups}", route_kernel, arguments, 1)
    arguments = {"choice": FLOATS, "groups": GROUPS, "most": ODD, "pairs": ODD, "experts": ODD}
    arguments |= {"EXPERTS": 128, "USED": 8, "COLS": 16, "BLOCK": 256}
    yield KernelCase("group", group_kernel, arguments)
    for name, chunks, block, columns, warps, activation in (
        ("mxfp4", 45, 32, few, 1, 5),
        ("q4_k", 64, 64, 16, 2, 0),
        ("q6_k", 64, 128, 32, 4, 0),
        ("q6_k", 64, 128, 64, 8, 0),
        ("mxfp4", 45, 128, 128, 8, 5),
        ("iq2_s", 64, 128, 64, 8, 1),
        ("q6_k", 64, 128, 16, 8, 0),
        ("f16", 45, 128, 128, 8, 5),
    ):
        sizes = PlaneSizes.of(FORMS[name], 4096, 64 * chunks)
        gated = activation > 0
        tile = ProductTile(
            rows=block,
            columns=columns,
            stages=stages_of(sizes, block, columns, FEW_COLUMNS, device),
            even=name != "q6_k",
            unroll=unroll_of(sizes),
        )
        after = _epilogue((1, gated, False, activation, gated, gated))
        after["epilogue"] = after["epilogue"]._replace(widths=(EVEN,))
        arguments = {
            "inputs": INPUTS,
            "pairs_of_input": ODD,
            "pairs": ODD,
            "weights": WEIGHTS,
            "choice": FLOATS,
            "groups": GROUPS,
            "most": ODD,
            "TILE": tile,
            "FORM": FORMS[name],
            "SINGLE": block == 32,
            "WHOLE": columns >= 64,
            "ASM": device.assembly,
            **after,
        }
        yield KernelCase(f"experts {name} {block}x{columns}", expert_kernel, arguments, warps)
    for both in (False, True):
        arguments = {
            "parts": FLOATS,
            "choice": FLOATS,
            "counts": INTS,
            "residual": optional(both),
            "out": FLOATS,
            "norm": NextNorm(optional(both), REAL, HALVES, ODD),
            "width": EVEN,
            "experts": ODD,
            "USED": 8,
            "EXPERTS": 128,
            "BLOCK": 2048,
        }
        yield KernelCase(f"mix {both}", mix_kernel, arguments, 8)
        rows = {"x": FLOATS, "gate": FLOATS, "residual": optional(both), "out": FLOATS}
        rows |= {"width": EVEN, "SIGMOID": both, "BLOCK": 1024}
        yield KernelCase(f"gate rows {both}", gate_rows_kernel, rows)


def row_cases() -> Iterator[KernelCase]:
    """What goes row by row."""
    for number, (name, form) in enumerate(FORMS.items()):
        odd = number % 2 == 1
        embedding = Embedding(REAL, optional(not odd), optional(odd), FLOATS, EVEN)
        rows = {"ids": INTS, "sampled": INTS, "positions": INTS, "types": INTS, "weights": WEIGHTS}
        rows |= {"embedding": embedding, "FORM": form}
        yield KernelCase(f"embed {name}", embed_kernel, rows, 1)
    for kind, half, weighted in (
        (0, True, False),
        (1, True, True),
        (1, False, True),
        (2, True, True),
        (2, False, False),
    ):
        norm = Norm(optional(weighted), optional(kind == 2 and weighted), REAL)
        row = {"x": FLOATS, "norm": norm, "residual": optional(not half), "out": out_of(half)}
        row |= {"width": EVEN, "stride": EVEN, "scale": REAL, "BLOCK": 4096, "NORM": kind}
        yield KernelCase(f"norm {kind} {half} {weighted}", norm_kernel, row, 8)
        if kind > 0:
            row |= {"run": ODD, "weight_stride": ODD, "BLOCK": 128}
            yield KernelCase(f"norm runs {kind} {half} {weighted}", norm_runs_kernel, row, 1)
    row = {"x": FLOATS, "out": FLOATS, "width": EVEN, "BLOCK": 1024}
    yield KernelCase("select", select_kernel, row | {"wanted": INTS})
    yield KernelCase("softcap", softcap_kernel, row | {"cap": REAL})


def elementwise_cases() -> Iterator[KernelCase]:
    """What goes number by number."""
    row = {"width": EVEN, "BLOCK": 1024}
    for activation, half in ((1, True), (8, False), (10, True)):
        values = {"gate": FLOATS, "up": optional(half), "out": out_of(half), "half_scale": REAL}
        values |= row | {"ACTIVATION": activation}
        yield KernelCase(f"activate {activation} {half}", activate_kernel, values)
    for half in (False, True):
        numbers = {"xielu": Xielu(REAL, REAL, REAL), "half_scale": REAL}
        values = {"x": FLOATS, "out": out_of(half)} | numbers | row
        yield KernelCase(f"xielu {half}", xielu_kernel, values)
    yield KernelCase("add", add_kernel, row | {"left": FLOATS, "right": FLOATS, "out": FLOATS})
    temper = {"x": FLOATS, "out": FLOATS, "positions": INTS, "temper": Temper(REAL, ODD, ODD)}
    yield KernelCase("temper", temper_kernel, row | temper)
    picked = {"x": FLOATS, "out": FLOATS, "first": ODD, "head_size": ODD, "size": ODD}
    yield KernelCase("pick heads", pick_heads_kernel, row | picked | {"x_width": EVEN})


def adapter_cases() -> Iterator[KernelCase]:
    """What adapters add: rows of all tokens or of the wanted ones, one or many of a tile."""
    tables, low = Tables(LONGS, LONGS, INTS, FLOATS, 1024), Low(FLOATS, EVEN, EVEN)
    for wanted, live, parts in ((False, 1, 3), (True, 16, 1), (False, 16, 6)):
        uses = Uses(INTS, FLOATS, INTS if wanted else None)
        shared = {"tokens": ODD, "uses": uses, "tables": tables, "low": low, "LIVE": live}
        row = {"x": HALVES, "stride": EVEN, "columns": EVEN, "DEPTH": 64}
        yield KernelCase(f"adapter down {live} {wanted}", adapter_down_kernel, shared | row)
        ids = {"ids": INTS, "sampled": INTS}
        yield KernelCase(f"adapter token {live} {wanted}", adapter_token_kernel, shared | ids)
        places = (ODD,) * parts
        target = Target(FLOATS, (REAL,) * parts, places, places, places, ODD)
        up = {"target": target, "BLOCK": 64}
        yield KernelCase(f"adapter up {live} {wanted}", adapter_up_kernel, shared | up)
    for number, gated in enumerate((True, False)):
        row = {"x": FLOATS, "out": out_of(gated), "width": EVEN, "half_scale": REAL, "BLOCK": 1024}
        row |= {"ACTIVATION": 1 + number, "GATED": gated}
        yield KernelCase(f"activate rows {gated}", activate_rows_kernel, row)


def attention_cases(device: Device) -> Iterator[KernelCase]:
    """Every storage, with other heads each: norms, RoPE, caps, sinks.

    Small heads for AMD: for gfx1100 larger ones take a minute each.
    """
    assembly = device.assembly
    for kv_type, type, size, norms, interleaved, special, seen in (
        (KvType.F16, torch.float16, 128 if assembly else 64, (0, 1), False, False, CAUSAL),
        *(
            (KvType.F16, torch.float16, size, (0, 1), False, False, CAUSAL)
            for size in (256, 512)
            if assembly
        ),
        (KvType.F16, torch.float16, 64, (0, 1), False, True, BOTH_WAYS),
        (KvType.BF16, torch.bfloat16, 80 if assembly else 20, (2, 2), True, False, CHUNKED),
        (KvType.Q8_0, torch.int8, 256 if assembly else 32, (1, 0), True, True, CAUSAL),
        (KvType.FP8, torch.uint8, 128 if assembly else 32, (1, 1), False, False, CAUSAL),
        (KvType.F32, torch.float32, 32, (0, 0), False, True, CAUSAL),
    ):
        floats = kv_type is KvType.F32
        label = {"f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "q8_0": "*i8", "fp8": "*u8"}
        pool = label[kv_type]
        side = {KvType.Q8_0: 34 * size, KvType.FP8: 32 * (size + 2)}.get(kv_type, 32 * size)
        form = CacheForm(size, padded_size(size), side, q8=kv_type is KvType.Q8_0)
        last = kv_type is KvType.FP8  # norms after RoPE, without weights
        pairs = 0 if floats else size // 2
        head = HeadForm(*norms, pairs=pairs, interleaved=interleaved, norms_last=last)
        cache = CacheView(INTS, ODD, Pointer(type), HALVES, EVEN, EVEN)
        rope = RopeTable() if floats else RopeTable(FLOATS, FLOATS)
        query_norm, key_norm = (
            HeadNorm(optional(norm > 0 and not last), ODD, REAL) for norm in norms
        )
        heads = Heads(FLOATS, FLOATS, FLOATS, query_norm, key_norm, rope)
        common = {"cache": cache, "positions": INTS, "FORM": form}
        of_encoded = {KvType.F32: [ENCODED], KvType.FP8: [DECODED]}.get(kv_type, [])
        stored = {"heads": heads, "rotated": HALVES, "sequences": INTS}
        stored |= {"count": ODD, "kv_count": ODD, "HEAD": head}
        yield KernelCase(f"store kv {pool}", store_kv_kernel, common | stored, 1)
        attention = _attention(special, not floats)
        tile = prompt_tile(size, kv_type, device)
        prompt = {"query": HALVES, "attention": attention, "tiles": INTS, "TILE": tile}
        prompt["SEEN"] = seen.value
        if floats:  # as a layer has them that reads the keys of another
            prompt["query"] = FLOATS
        yield KernelCase(
            f"attend prompt {pool} {size} seen={seen.value}",
            attend_prompt_kernel,
            common | prompt,
            prompt_warps(tile, form.padded),
            {"enable_fp_fusion": False},
        )
        span = generation_span(16, size, kv_type, device)
        step = {"attention": attention, "work": PartWork(FLOATS, FLOATS, FLOATS), "first": ODD}
        step |= {"parts": ODD}
        step |= {"sequences": INTS, "TILE": GenerationTile(16, span, 128), "HEAD": head}
        if seen is BOTH_WAYS:  # nothing is decoded
            continue
        stores = (False, True) if kv_type is KvType.F16 else (not floats,)
        for store, part in product(stores, [seen, *of_encoded]):
            named = heads if store or floats else heads._replace(query=HALVES)
            name = f"attend generation {pool} {size} store={store} seen={part.value}"
            arguments = common | step | {"heads": named, "STORE": store} | _seen(part)
            yield KernelCase(name, attend_generation_kernel, arguments, 8)
    for sinks, seen in ((False, CAUSAL), (True, CHUNKED), (False, ENCODED), (False, DECODED)):
        joined = {"attention": _attention(sinks, sinks), "work": PartWork(FLOATS, FLOATS, FLOATS)}
        joined |= {"first": ODD, "parts": ODD, "positions": INTS}
        joined |= {"SIZE": 128, "PADDED": 128, "PART": 128, **_seen(seen)}
        yield KernelCase(f"join parts {sinks} seen={seen.value}", join_parts_kernel, joined)


def _seen(part: tl.constexpr) -> dict[str, Any]:
    """Which positions a decoded token sees."""
    encoded = part.value in (ENCODED.value, DECODED.value)
    return {"SEEN": part.value, "encoded": INTS if encoded else None}


def _attention(special: bool, half: bool) -> Attention:
    """With a cap, sinks and what distances add, or without."""
    return Attention(
        heads=ODD,
        group=ODD,
        scale=REAL,
        cap=REAL if special else None,
        window=ODD,
        sinks=optional(special),
        bias=optional(special),
        reach=ODD,
        slopes=optional(special),
        out=out_of(half),
        out_scale=REAL,
    )


def sampler_cases() -> Iterator[KernelCase]:
    """Sampling."""
    exact = {"enable_fp_fusion": False}
    wanted = {"ints": INTS, "floats": FLOATS, "keys": LONGS, "slices": ODD}
    found = {"logits": FLOATS, "edited": INTS, "lowered": FLOATS, "vocabulary": ODD}
    yield KernelCase("shortlist", shortlist_kernel, wanted | found | {"SLICE": 4096}, 8, exact)
    drawn = {"doubles": DOUBLES, "best": LONGS, "work": DOUBLES, "tokens": INTS}
    drawn |= {"FEW": 4096, "MANY": 16384, "SLICES": 64}
    yield KernelCase("sample", sample_kernel, wanted | drawn, 8, exact)


def cases(
    *, assembly: bool, ahead: bool = False, shared_memory: int = 1 << 30
) -> Iterator[KernelCase]:
    """All kernels; `assembly` as on NVIDIA, where a product has at least 8 columns, not 16.

    Tiles are those of a device whose programs may have so many bytes of shared memory.
    """
    device = replace(imagined_device(), assembly=assembly, ahead=ahead, shared_memory=shared_memory)
    few = 8 if assembly else 16
    yield from linear_cases(device, few)
    yield from pair_cases(device, few)
    yield from expert_cases(device, few)
    yield from row_cases()
    yield from elementwise_cases()
    yield from adapter_cases()
    yield from attention_cases(device)
    yield from latent_cases(device, few)
    yield from state_cases(device)
    yield from stream_cases()
    yield from sampler_cases()
