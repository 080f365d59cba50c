"""Every kernel with arguments as it is launched: bundles of pointers and numbers, and constants.

Used to compile for devices that are not there, and to look at what the compiler made.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import torch
from triton.runtime.jit import MockTensor

from ingot.backends.gpu.attention import generation_span, padded_size, prompt_tile, prompt_warps
from ingot.backends.gpu.device import Device, imagined_device
from ingot.backends.gpu.experts import FEW_COLUMNS
from ingot.backends.gpu.kernels.attend_generation import (
    GenerationTile,
    PartWork,
    attend_generation_kernel,
    join_parts_kernel,
)
from ingot.backends.gpu.kernels.attend_prompt import attend_prompt_kernel
from ingot.backends.gpu.kernels.attention import Attention
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
from ingot.backends.gpu.kernels.matmul import Unpacked, dequantize_kernel, matmul_kernel
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
    MATMUL_TILE,
    SHARED_MATMUL_TILE,
    matmul_stages,
    stages_of,
    unroll_of,
)
from ingot.backends.gpu.planes import PlaneForm, PlaneSizes
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
    "iq4": PlaneForm(4, table=1),
    "mxfp4": PlaneForm(4, table=2),
}
EVEN = 4096  # sizes and strides that are multiples of 16
ODD = 7  # numbers that the compiler may know nothing about
REAL = 0.5


class Pointer(MockTensor):
    """Stands for a tensor of any size that begins at a multiple of 16 bytes."""

    @staticmethod
    def ptr_range() -> int:
        return 1 << 40


DOUBLES = Pointer(torch.float64)
FLOATS = Pointer(torch.float32)
HALVES = Pointer(torch.float16)
INTS = Pointer(torch.int32)
LONGS = Pointer(torch.int64)
WORDS = Pointer(torch.uint16)
PAIRS = Pointer(torch.uint32)

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


_ORDER = "AHEAD"


@dataclass(frozen=True)
class KernelCase:
    """A kernel and one set of arguments, by name."""

    name: str
    kernel: Any
    arguments: Mapping[str, Any]
    warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = set(inspect.signature(self.kernel.fn).parameters)
        assert asked - {_ORDER} == set(self.arguments) - {_ORDER}

    def ordered(self, ahead: bool) -> "KernelCase":
        """The same if kernels may start before the one before them has ended, or not."""
        if _ORDER not in self.kernel.arg_names:
            return self
        return replace(self, arguments={**self.arguments, _ORDER: ahead})


def _out(half: bool) -> Pointer:
    return HALVES if half else FLOATS


def _optional(there: bool) -> Pointer | None:
    return FLOATS if there else None


def _epilogue(values: EpilogueOptions) -> dict[str, Any]:
    parts, bias, residual, activation, gated, half = values
    places = (ODD,) * parts
    epilogue = Epilogue(
        factor=REAL,
        bias=_optional(bias),
        residual=_optional(residual),
        out=_out(half),
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
        "first": ODD,
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
    for epilogue, splits in zip(EPILOGUES[:3], (1, 8, 8), strict=True):
        rows, tokens = MATMUL_TILE if splits == 1 else SHARED_MATMUL_TILE
        even = epilogue[0] == 1
        tile = ProductTile(rows, tokens, matmul_stages(device), even, splits=splits)
        matrix = Unpacked(HALVES, EVEN, EVEN, EVEN)
        arguments = {"inputs": INPUTS, "tokens": ODD, "matrix": matrix, "TILE": tile}
        arguments |= _epilogue(epilogue)
        yield KernelCase(f"matmul {splits} {epilogue}", matmul_kernel, arguments, 8)


def pair_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """Two forms that read the same input."""
    for block, columns, even in ((32, few, True), (128, 32, False)):
        forms = ("q4_k", "q6_k") if even else ("q6_k", "q4_k")
        arguments: dict[str, Any] = {"inputs": INPUTS, "tokens": ODD, "first": ODD}
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
    for gating in range(4):
        arguments = {
            "scores": FLOATS,
            "bias": _optional(gating == 1),
            "choice": FLOATS,
            "positions": INTS,
            "groups": GROUPS,
            "experts": ODD,
            "scale": REAL,
            "near": REAL,
            "ROUTER": Router(128, used=8, slots=8, gating=gating, normalize=gating == 0),
            "COUNTED": gating > 0,
            "SELECTED": gating == 2,
        }
        yield KernelCase(f"route {gating}", route_kernel, arguments, 1)
    arguments = {"choice": FLOATS, "groups": GROUPS, "most": ODD, "pairs": ODD, "experts": ODD}
    arguments |= {"EXPERTS": 128, "USED": 8, "COLS": 16, "BLOCK": 256}
    yield KernelCase("group", group_kernel, arguments)
    for name, chunks, block, columns, warps, activation in (
        ("mxfp4", 45, 32, few, 1, 5),
        ("q4_k", 64, 64, 16, 2, 0),
        ("q6_k", 64, 128, 32, 4, 0),
        ("mxfp4", 45, 128, 128, 8, 5),
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
            "ASM": device.assembly,
            **after,
        }
        yield KernelCase(f"experts {name} {block}x{columns}", expert_kernel, arguments, warps)
    for both in (False, True):
        arguments = {
            "parts": FLOATS,
            "choice": FLOATS,
            "counts": INTS,
            "residual": _optional(both),
            "out": FLOATS,
            "norm": NextNorm(_optional(both), REAL, HALVES, ODD),
            "width": EVEN,
            "experts": ODD,
            "USED": 8,
            "EXPERTS": 128,
            "BLOCK": 2048,
        }
        yield KernelCase(f"mix {both}", mix_kernel, arguments, 8)
        rows = {"x": FLOATS, "gate": FLOATS, "residual": _optional(both), "out": FLOATS}
        rows |= {"width": EVEN, "BLOCK": 1024}
        yield KernelCase(f"gate rows {both}", gate_rows_kernel, rows)


def row_cases(*, assembly: bool) -> Iterator[KernelCase]:
    """What goes row by row."""
    for number, (name, form) in enumerate(FORMS.items()):
        plain = {"weights": WEIGHTS, "out": HALVES, "FORM": form, "ASM": assembly}
        yield KernelCase(f"dequantize {name}", dequantize_kernel, plain, 2)
        embedding = Embedding(REAL, _optional(number % 2 == 0), FLOATS, EVEN)
        rows = {"ids": INTS, "sampled": INTS, "positions": INTS, "weights": WEIGHTS}
        rows |= {"embedding": embedding, "FORM": form}
        yield KernelCase(f"embed {name}", embed_kernel, rows, 1)
    for kind, half in ((0, True), (1, True), (1, False), (2, True)):
        norm = Norm(_optional(kind > 0), _optional(kind == 2), REAL)
        row = {"x": FLOATS, "norm": norm, "residual": _optional(not half), "out": _out(half)}
        row |= {"width": EVEN, "stride": EVEN, "scale": REAL, "BLOCK": 4096, "NORM": kind}
        yield KernelCase(f"norm {kind} {half}", norm_kernel, row, 8)
    row = {"x": FLOATS, "out": FLOATS, "width": EVEN, "BLOCK": 1024}
    yield KernelCase("select", select_kernel, row | {"wanted": INTS})
    yield KernelCase("softcap", softcap_kernel, row | {"cap": REAL})


def attention_cases(device: Device) -> Iterator[KernelCase]:
    """Every storage, with other heads each: norms, RoPE, caps, sinks.

    Small heads for AMD: for gfx1100 larger ones take a minute each.
    """
    assembly = device.assembly
    for kv_type, type, size, norms, interleaved, special in (
        (KvType.F16, torch.float16, 128 if assembly else 64, (0, 1), False, False),
        *([(KvType.F16, torch.float16, 256, (0, 1), False, False)] if assembly else []),
        (KvType.BF16, torch.bfloat16, 80 if assembly else 20, (2, 2), True, False),
        (KvType.Q8_0, torch.int8, 256 if assembly else 32, (1, 0), True, True),
        (KvType.FP8, torch.uint8, 128 if assembly else 32, (0, 0), False, False),
        (KvType.F32, torch.float32, 32, (0, 0), False, True),
    ):
        floats = kv_type is KvType.F32
        label = {"f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "q8_0": "*i8", "fp8": "*u8"}
        pool = label[kv_type]
        side = {KvType.Q8_0: 34 * size, KvType.FP8: 32 * (size + 2)}.get(kv_type, 32 * size)
        form = CacheForm(size, padded_size(size), side, q8=kv_type is KvType.Q8_0)
        head = HeadForm(*norms, pairs=0 if floats else size // 2, interleaved=interleaved)
        cache = CacheView(INTS, ODD, Pointer(type), HALVES, EVEN, EVEN)
        rope = RopeTable() if floats else RopeTable(FLOATS, FLOATS)
        query_norm, key_norm = (HeadNorm(_optional(norm > 0), ODD, REAL) for norm in norms)
        heads = Heads(FLOATS, FLOATS, FLOATS, query_norm, key_norm, rope)
        common = {"cache": cache, "positions": INTS, "FORM": form}
        stored = {"heads": heads, "rotated": HALVES, "sequences": INTS}
        stored |= {"count": ODD, "kv_count": ODD, "HEAD": head}
        yield KernelCase(f"store kv {pool}", store_kv_kernel, common | stored, 1)
        attention = _attention(special, not floats)
        tile = prompt_tile(size, kv_type, device)
        prompt = {"query": HALVES, "attention": attention, "tiles": INTS, "TILE": tile}
        yield KernelCase(
            f"attend prompt {pool} {size}",
            attend_prompt_kernel,
            common | prompt,
            prompt_warps(tile),
            {"enable_fp_fusion": False},
        )
        span = generation_span(16, size, kv_type, device)
        step = {"attention": attention, "work": PartWork(FLOATS, FLOATS, FLOATS), "first": ODD}
        step |= {"sequences": INTS, "TILE": GenerationTile(16, span, 128), "HEAD": head}
        for store in (False, True) if kv_type is KvType.F16 else (not floats,):
            named = heads if store else heads._replace(query=HALVES)
            name = f"attend generation {pool} {size} store={store}"
            arguments = common | step | {"heads": named, "STORE": store}
            yield KernelCase(name, attend_generation_kernel, arguments, 8)
    for sinks in (False, True):
        joined = {"attention": _attention(sinks, sinks), "work": PartWork(FLOATS, FLOATS, FLOATS)}
        joined |= {"first": ODD, "parts": ODD, "positions": INTS}
        joined |= {"SIZE": 128, "PADDED": 128, "PART": 128}
        yield KernelCase(f"join parts {sinks}", join_parts_kernel, joined)


def _attention(special: bool, half: bool) -> Attention:
    """With a cap and sinks, or without."""
    return Attention(
        heads=ODD,
        group=ODD,
        scale=REAL,
        cap=REAL if special else None,
        window=ODD,
        sinks=_optional(special),
        out=_out(half),
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
    yield from row_cases(assembly=assembly)
    yield from attention_cases(device)
    yield from sampler_cases()
