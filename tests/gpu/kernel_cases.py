"""Every kernel with the arguments it is compiled for: types by name, and constants.

Used to compile for devices that are not there, and to look at what the compiler made.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import triton.language as tl

from ingot.backends.gpu.attention import PromptTile, generation_span, padded_size, prompt_warps
from ingot.backends.gpu.device import Device, imagined_device
from ingot.backends.gpu.experts import FEW_COLUMNS
from ingot.backends.gpu.kernels.attend_generation import attend_generation_kernel
from ingot.backends.gpu.kernels.attend_prompt import attend_prompt_kernel
from ingot.backends.gpu.kernels.dequantize import dequantize_kernel
from ingot.backends.gpu.kernels.experts import expert_kernel
from ingot.backends.gpu.kernels.join_parts import join_parts_kernel
from ingot.backends.gpu.kernels.linear import linear_kernel, linear_pair_kernel
from ingot.backends.gpu.kernels.matmul import matmul_kernel
from ingot.backends.gpu.kernels.mix import gate_rows_kernel, mix_kernel
from ingot.backends.gpu.kernels.norm import norm_kernel
from ingot.backends.gpu.kernels.route import group_kernel, route_kernel
from ingot.backends.gpu.kernels.rows import embed_kernel, select_kernel, softcap_kernel
from ingot.backends.gpu.kernels.sample import sample_kernel, shortlist_kernel
from ingot.backends.gpu.kernels.store_kv import store_kv_kernel
from ingot.backends.gpu.linear import MATMUL_TILE, matmul_stages, stages_of, unroll_of
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
KV_TYPES = {
    "*fp32": KvType.F32,
    "*fp16": KvType.F16,
    "*bf16": KvType.BF16,
    "*i8": KvType.Q8_0,
    "*u8": KvType.FP8,
}
_POINTERS = {
    "x": "*fp16",
    "codes": "*u16",
    "extras": "*u16",
    "scales": "*u32",
    "work": "*fp32",
    "counters": "*i32",
    "bias": "*fp32",
    "residual": "*fp32",
    "weights": "*fp16",
    "ids": "*i32",
    "wanted": "*i32",
    "weight": "*fp32",
    "query_weight": "*fp32",
    "key_weight": "*fp32",
    "cos": "*fp32",
    "sin": "*fp32",
    "positions": "*i32",
    "sequences": "*i32",
    "tiles": "*i32",
    "table": "*i32",
    "pool_scales": "*fp16",
    "turned": "*fp16",
    "query": "*fp16",
    "key": "*fp32",
    "value": "*fp32",
    "sinks": "*fp32",
    "work_mixed": "*fp32",
    "work_best": "*fp32",
    "work_total": "*fp32",
    "learned": "*fp32",
    "added": "*fp32",
    "scores": "*fp32",
    "counts": "*i32",
    "ranks": "*i32",
    "choice": "*fp32",
    "sorted_pairs": "*i32",
    "tile_count": "*i32",
    "parts": "*fp32",
    "gate": "*fp32",
    "norm_weight": "*fp32",
    "normed": "*fp16",
    "logits": "*fp32",
    "ints": "*i32",
    "floats": "*fp32",
    "doubles": "*fp64",
    "edited": "*i32",
    "lowered": "*fp32",
    "keys": "*i64",
    "best": "*i64",
    "chosen": "*i32",
}
_FLOATS = {
    "factor",
    "half_scale",
    "epsilon",
    "scale",
    "cap",
    "query_epsilon",
    "key_epsilon",
    "out_scale",
    "near",
}


# What may follow the sums of a linear map: parts, bias, residual, activation, gated, halves.
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


_ORDER = "AHEAD"


@dataclass(frozen=True)
class KernelCase:
    """A kernel and one set of arguments."""

    name: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = inspect.signature(self.kernel.fn).parameters.values()
        known = {p.name for p in asked if p.annotation is tl.constexpr}
        assert known - {_ORDER} == set(self.constants) - {_ORDER}

    def ordered(self, ahead: bool) -> "KernelCase":
        """The same where kernels may start ahead of the one in front of them, or not."""
        if _ORDER not in self.kernel.arg_names:
            return self
        return replace(self, constants={**self.constants, _ORDER: ahead})

    def signature(self) -> dict[str, str]:
        """Types of all arguments, in order."""
        found = {}
        for name in self.kernel.arg_names:
            if name in self.constants:
                found[name] = "constexpr"
            elif name in self.types:
                found[name] = self.types[name]
            else:
                found[name] = _POINTERS.get(name, "fp32" if name in _FLOATS else "i32")
        return found

    def attributes(self) -> dict[tuple[int], list[list[object]]]:
        """Pointers and strides are multiples of 16, as they are when launched."""
        even = {"x_stride", "columns", "stride", "rows", "block_stride", "layer_start", "width"}
        return {
            (index,): [["tt.divisibility", 16]]
            for index, (name, type) in enumerate(self.signature().items())
            if type.startswith("*") or name in even
        }


def _out(half: bool) -> dict[str, str]:
    return {"out": "*fp16" if half else "*fp32"}


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
    epilogue: tuple[int, bool, bool, int, bool, bool] = EPILOGUES[0],
) -> KernelCase:
    """A map of rows of so many chunks, as it is launched."""
    sizes = PlaneSizes.of(form, 4096, 64 * chunks)
    constants = {
        "BLOCK": block,
        "COLS": columns,
        "UNROLL": unroll_of(sizes),
        "STAGES": stages_of(sizes, block, columns, 8, device),
        "SPLITS": splits,
        "EVEN": even,
        "ASM": device.assembly,
        **form.constants(),
        **_epilogue(epilogue),
    }
    name = f"linear {form} {block}x{columns} splits={splits} {epilogue}"
    return KernelCase(name, linear_kernel, _out(epilogue[-1]), constants, warps)


def _epilogue(values: tuple[int, bool, bool, int, bool, bool]) -> dict[str, Any]:
    names = ("PARTS", "BIAS", "RESIDUAL", "ACTIVATION", "GATED", "HALF")
    return dict(zip(names, values, strict=True))


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
    rows, tokens = MATMUL_TILE
    tile = {"BLOCK": rows, "COLS": tokens, "DEPTH": 64, "STAGES": matmul_stages(device)}
    for epilogue in EPILOGUES[:3]:
        constants = {**tile, "EVEN": epilogue[0] == 1, **_epilogue(epilogue)}
        yield KernelCase(f"matmul {epilogue}", matmul_kernel, _out(epilogue[-1]), constants, 8)


def pair_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """Two forms that read the same input."""
    types = {f"{name}_{side}": type for name, type in _POINTERS.items() for side in "ab"}
    types |= {"out": "*fp32", "factor_a": "fp32", "factor_b": "fp32"}
    for block, columns, even in ((32, few, True), (128, 32, False)):
        forms = ("q4_k", "q6_k") if even else ("q6_k", "q4_k")
        constants = {"BLOCK": block, "COLS": columns, "EVEN": even, "ASM": device.assembly}
        for side, name, parts in zip("AB", forms, (2, 1), strict=True):
            sizes = PlaneSizes.of(FORMS[name], 4096, 4096)
            stages = stages_of(sizes, block, columns, 8, device)
            own = {"UNROLL": unroll_of(sizes), "STAGES": stages, "SPLITS": 5}
            own |= {"PARTS": parts, "BIAS": even, **FORMS[name].constants()}
            constants |= {f"{key}_{side}": value for key, value in own.items()}
        name = f"linear pair {block}x{columns}"
        yield KernelCase(name, linear_pair_kernel, types, constants, block // 32)


def expert_cases(device: Device, few: int) -> Iterator[KernelCase]:
    """The choice, the order of tokens, products for one token, some and many, and the mix."""
    chosen = {"EXPERTS": 128, "SLOTS": 8, "USED": 8}
    for gating in range(4):
        options = {"NORMALIZE": gating == 0, "BIAS": gating == 1}
        options |= {"COUNTED": gating > 0, "SELECTED": gating == 2}
        constants = {**chosen, "GATING": gating, **options}
        yield KernelCase(f"route {gating}", route_kernel, _out(False), constants, 1)
    tiles = {"EXPERTS": 128, "USED": 8, "COLS": 16, "BLOCK": 256}
    yield KernelCase("group", group_kernel, {}, tiles)
    for name, chunks, block, columns, warps, activation in (
        ("mxfp4", 45, 32, few, 1, 5),
        ("q4_k", 64, 64, 16, 2, 0),
        ("q6_k", 64, 128, 32, 4, 0),
        ("mxfp4", 45, 128, 128, 8, 5),
        ("f16", 45, 128, 128, 8, 5),
    ):
        sizes = PlaneSizes.of(FORMS[name], 4096, 64 * chunks)
        gated = activation > 0
        constants = {
            "BLOCK": block,
            "COLS": columns,
            "UNROLL": unroll_of(sizes),
            "STAGES": stages_of(sizes, block, columns, FEW_COLUMNS, device),
            "EVEN": name != "q6_k",
            "SINGLE": block == 32,
            "ASM": device.assembly,
            **FORMS[name].constants(),
            "BIAS": gated,
            "ACTIVATION": activation,
            "GATED": gated,
            "HALF": gated,
        }
        case = f"experts {name} {block}x{columns}"
        yield KernelCase(case, expert_kernel, _out(gated), constants, warps)
    types = {"out": "*fp32", "x": "*fp32"}
    for both in (False, True):
        mixed = {"USED": 8, "RESIDUAL": both, "NORM": both, "EXPERTS": 128, "BLOCK": 2048}
        yield KernelCase(f"mix {both}", mix_kernel, types, mixed, 8)
        rows = {"RESIDUAL": both, "BLOCK": 1024}
        yield KernelCase(f"gate rows {both}", gate_rows_kernel, types, rows)


def row_cases(*, assembly: bool) -> Iterator[KernelCase]:
    """What goes row by row."""
    for number, (name, form) in enumerate(FORMS.items()):
        plain = {"ASM": assembly, **form.constants()}
        yield KernelCase(f"dequantize {name}", dequantize_kernel, _out(True), plain, 2)
        rows = {"POSITIONS": number % 2 == 0, **form.constants()}
        yield KernelCase(f"embed {name}", embed_kernel, _out(False), rows, 1)
    for kind, half in ((0, True), (1, True), (1, False), (2, True)):
        row = {"BLOCK": 4096, "NORM": kind, "BIAS": kind == 2, "RESIDUAL": not half, "HALF": half}
        types = {"x": "*fp32", **_out(half)}
        yield KernelCase(f"norm {kind} {half}", norm_kernel, types, row, 8)
    types = {"x": "*fp32", "out": "*fp32"}
    yield KernelCase("select", select_kernel, types, {"BLOCK": 1024})
    yield KernelCase("softcap", softcap_kernel, types, {"BLOCK": 1024})


def attention_cases(device: Device) -> Iterator[KernelCase]:
    """Every storage, with other heads each: norms, turns, caps, sinks.

    Small heads for AMD: for gfx1100 larger ones take a minute each.
    """
    assembly = device.assembly
    for pool, size, norms, adjacent, special in (
        ("*fp16", 128 if assembly else 64, (0, 1), False, False),
        *([("*fp16", 256, (0, 1), False, False)] if assembly else []),
        ("*bf16", 80 if assembly else 20, (2, 2), True, False),
        ("*i8", 256 if assembly else 32, (1, 0), True, True),
        ("*u8", 128 if assembly else 32, (0, 0), False, False),
        ("*fp32", 32, (0, 0), False, True),
    ):
        kv_type = KV_TYPES[pool]
        span = generation_span(16, size, kv_type, device)
        prompt = PromptTile.of(size, kv_type, device)
        cache = {"SIZE": size, "PADDED": padded_size(size), "Q8": pool == "*i8"}
        cache["SIDE"] = {"*i8": 34 * size, "*u8": 32 * (size + 2)}.get(pool, 32 * size)
        heads = {"QUERY_NORM": norms[0], "KEY_NORM": norms[1], "ADJACENT": adjacent}
        heads["PAIRS"] = 0 if pool == "*fp32" else size // 2
        types = {"pool": pool, "query": "*fp32"}
        yield KernelCase(f"store kv {pool}", store_kv_kernel, types, cache | heads, 1)
        tile = {
            **cache,
            "CAPPED": special,
            "SINKS": special,
            "HALF": pool != "*fp32",
            "STAGES": 2,
        }
        types = {"pool": pool, **_out(pool != "*fp32")}
        unfused = {"enable_fp_fusion": False}
        yield KernelCase(
            f"attend prompt {pool} {size}",
            attend_prompt_kernel,
            types,
            tile | {"ROWS": prompt.rows, "SPAN": prompt.span},
            prompt_warps(prompt),
            unfused,
        )
        part = {**tile, **heads, "ROWS": 16, "SPAN": span, "PART": 128}
        for store in (False, True) if pool == "*fp16" else (pool != "*fp32",):
            turned = {**types, "query": "*fp32" if store else "*fp16"}
            name = f"attend generation {pool} {size} store={store}"
            yield KernelCase(name, attend_generation_kernel, turned, part | {"STORE": store}, 8)
    for sinks in (False, True):
        joined = {"SIZE": 128, "PADDED": 128, "PART": 128, "SINKS": sinks, "HALF": sinks}
        types = {"parts": "i32", **_out(sinks)}
        yield KernelCase(f"join parts {sinks}", join_parts_kernel, types, joined)


def sampler_cases() -> Iterator[KernelCase]:
    """The device sampler."""
    exact = {"enable_fp_fusion": False}
    yield KernelCase("shortlist", shortlist_kernel, {}, {"SLICE": 4096}, 8, exact)
    found = {"FEW": 4096, "MANY": 16384, "SLICES": 64}
    yield KernelCase("sample", sample_kernel, {"work": "*fp64"}, found, 8, exact)


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
