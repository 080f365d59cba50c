"""Every kernel with the arguments it is compiled for: types by name, and constants.

Used to compile for devices that are not there, and to look at what the compiler made.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingot.backends.gpu.kernels.attend_generation import attend_generation_kernel
from ingot.backends.gpu.kernels.attend_prompt import attend_prompt_kernel
from ingot.backends.gpu.kernels.choose import choose_kernel, shortlist_kernel
from ingot.backends.gpu.kernels.dequantize import dequantize_kernel
from ingot.backends.gpu.kernels.experts import expert_kernel
from ingot.backends.gpu.kernels.linear import linear_kernel
from ingot.backends.gpu.kernels.matmul import matmul_kernel
from ingot.backends.gpu.kernels.mix import gate_rows_kernel, mix_kernel
from ingot.backends.gpu.kernels.norm import norm_kernel
from ingot.backends.gpu.kernels.route import group_kernel, route_kernel
from ingot.backends.gpu.kernels.rows import embed_kernel, select_kernel, softcap_kernel
from ingot.backends.gpu.kernels.store_kv import store_kv_kernel
from ingot.backends.gpu.planes import PlaneForm

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


@dataclass(frozen=True)
class KernelCase:
    """A kernel and one set of arguments."""

    name: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int = 4
    fusion: bool = True  # of multiplications and additions

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


def _epilogue(gated: bool) -> dict[str, Any]:
    return {
        "PARTS": 1 if gated else 3,
        "BIAS": not gated,
        "RESIDUAL": False,
        "ACTIVATION": 1 if gated else 0,
        "GATED": gated,
        "HALF": gated,
    }


def linear_case(
    form: PlaneForm,
    *,
    assembly: bool,
    block: int,
    columns: int,
    splits: int,
    gated: bool,
    warps: int,
) -> KernelCase:
    out = "*fp16" if gated else "*fp32"
    constants = {
        "BLOCK": block,
        "COLS": columns,
        "UNROLL": 4 if columns <= 8 or form.high == 1 else 2,
        "STAGES": 3,
        "SPLITS": splits,
        "EVEN": True,
        "ASM": assembly,
        **form.constants(),
        **_epilogue(gated),
    }
    name = f"linear {form} {block}x{columns} splits={splits} gated={gated}"
    return KernelCase(name, linear_kernel, {"out": out}, constants, warps)


def expert_cases(*, assembly: bool, small_columns: int) -> Iterator[KernelCase]:
    many = {"EXPERTS": 128, "SLOTS": 8, "USED": 8, "NORMALIZE": True, "BIAS": True}
    for gating in range(4):
        chosen = {**many, "GATING": gating, "COUNTED": True, "SELECTED": gating == 0}
        types = {"out": "*fp32"}
        yield KernelCase(f"route {gating}", route_kernel, types, chosen, 1)
    tiles = {"EXPERTS": 128, "USED": 8, "COLS": 16, "BLOCK": 256}
    yield KernelCase("group", group_kernel, {}, tiles)
    for name, gated in (("mxfp4", True), ("q4_k", False), ("q6_k", False)):
        for block, columns, warps in ((32, small_columns, 1), (128, 128, 8)):
            constants = {
                "BLOCK": block,
                "COLS": columns,
                "UNROLL": 3 if gated else 2,
                "STAGES": 3,
                "EVEN": True,
                "SINGLE": block == 32,
                "ASM": assembly,
                **FORMS[name].constants(),
                "BIAS": gated,
                "ACTIVATION": 5 if gated else 0,
                "GATED": gated,
                "HALF": gated,
            }
            types = {"out": "*fp16" if gated else "*fp32"}
            case = f"experts {name} {block}x{columns}"
            yield KernelCase(case, expert_kernel, types, constants, warps)
    mixed = {"USED": 8, "RESIDUAL": True, "NORM": True, "EXPERTS": 128, "BLOCK": 2048}
    types = {"out": "*fp32", "x": "*fp32"}
    yield KernelCase("mix", mix_kernel, types, mixed)
    yield KernelCase("gate rows", gate_rows_kernel, types, {"RESIDUAL": True, "BLOCK": 1024})


def _attention(heads: Mapping[str, Any], pool: str) -> dict[str, Any]:
    q8 = pool == "*i8"
    return {
        "SIZE": 128,
        "PADDED": 128,
        "SIDE": 32 * 128 if not q8 else 34 * 128,
        "SPAN": 32 if pool == "*fp32" else 64,
        "CAPPED": q8,
        "SINKS": q8,
        "Q8": q8,
        "HALF": True,
        "STAGES": 2,
        **heads,
    }


def cases(*, assembly: bool, small_columns: int) -> Iterator[KernelCase]:
    """All kernels; `assembly` as on NVIDIA, `small_columns` the fewest columns of a product."""
    for form in FORMS.values():
        yield linear_case(
            form, assembly=assembly, block=64, columns=small_columns, splits=4, gated=False, warps=2
        )
        plain = {"ASM": assembly, **form.constants()}
        types = {"out": "*fp16"}
        yield KernelCase(f"dequantize {form}", dequantize_kernel, types, plain, 2)
        types = {"out": "*fp32"}
        rows = {"POSITIONS": True, **form.constants()}
        yield KernelCase(f"embed {form}", embed_kernel, types, rows, 1)
    nibbles = FORMS["q4_k"]
    for columns in (16, 64):
        yield linear_case(
            nibbles, assembly=assembly, block=128, columns=columns, splits=1, gated=True, warps=4
        )
    yield linear_case(
        nibbles, assembly=assembly, block=128, columns=64, splits=1, gated=False, warps=8
    )
    yield from expert_cases(assembly=assembly, small_columns=small_columns)
    tile = {"BLOCK": 128, "COLS": 256, "DEPTH": 64, "STAGES": 3, "EVEN": True}
    for gated in (False, True):
        out = {"out": "*fp16" if gated else "*fp32"}
        yield KernelCase(f"matmul gated={gated}", matmul_kernel, out, tile | _epilogue(gated), 8)
    for kind in (0, 1, 2):
        row = {"BLOCK": 4096, "NORM": kind, "BIAS": kind == 2, "RESIDUAL": False, "HALF": True}
        yield KernelCase(f"norm {kind}", norm_kernel, {"x": "*fp32", "out": "*fp16"}, row, 8)
    block = {"BLOCK": 1024}
    yield KernelCase("select", select_kernel, {"x": "*fp32", "out": "*fp32"}, block)
    yield KernelCase("softcap", softcap_kernel, {"x": "*fp32", "out": "*fp32"}, block)
    slices = {"SLICE": 4096}
    yield KernelCase("shortlist", shortlist_kernel, {}, slices, 8, fusion=False)
    found = {"FEW": 4096, "MANY": 16384, "SLICES": 64}
    yield KernelCase("choose", choose_kernel, {"work": "*fp64"}, found, 8, fusion=False)
    for pool, q8 in (("*fp16", False), ("*i8", True), ("*fp32", False)):
        heads = {
            "SIZE": 128,
            "PADDED": 128,
            "SIDE": 34 * 128 if q8 else 32 * 128,
            "QUERY_NORM": 2 if q8 else 1,
            "KEY_NORM": int(q8),
            "PAIRS": 64,
            "ADJACENT": q8,
            "Q8": q8,
        }
        stored = {"pool": pool, "query": "*fp32"}
        yield KernelCase(f"store kv {pool}", store_kv_kernel, stored, heads, 1)
        tile = _attention({"ROWS": 128}, pool)
        types = {"pool": pool, "out": "*fp16"}
        yield KernelCase(f"attend prompt {pool}", attend_prompt_kernel, types, tile, 8)
        for store in (False, True):
            part = _attention({"ROWS": 16, "GROUP": 4, "TOGETHER": 16, "PART": 128}, pool)
            part |= {"STORE": store, "QUERY_NORM": int(q8), "KEY_NORM": int(q8)}
            part |= {"PAIRS": 64, "ADJACENT": q8}
            types = {"pool": pool, "out": "*fp16", "query": "*fp32" if store else "*fp16"}
            name = f"attend generation {pool} store={store}"
            yield KernelCase(name, attend_generation_kernel, types, part)
