"""Cases of linear maps: sizes, formats, several of one input, norms before and gates after them."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ingot.gguf import GgmlType
from ingot.graph import ops as o
from ops.case import Gpu, SmallCase
from ops.small_graph import SmallGraph

FLOAT = 1e-5
QUANTIZED = 1e-3  # inputs are rounded to 14 (prompt) or 15 bits
FORMATS = [
    GgmlType.F32,
    GgmlType.F16,
    GgmlType.BF16,
    GgmlType.Q4_0,
    GgmlType.Q4_1,
    GgmlType.Q5_0,
    GgmlType.Q5_1,
    GgmlType.Q8_0,
    GgmlType.Q2_K,
    GgmlType.Q3_K,
    GgmlType.Q4_K,
    GgmlType.Q5_K,
    GgmlType.Q6_K,
    GgmlType.IQ4_NL,
    GgmlType.IQ4_XS,
    GgmlType.MXFP4,
    GgmlType.NVFP4,
    GgmlType.IQ1_S,
    GgmlType.IQ1_M,
    GgmlType.IQ2_XXS,
    GgmlType.IQ2_XS,
    GgmlType.IQ2_S,
    GgmlType.IQ3_XXS,
    GgmlType.IQ3_S,
    GgmlType.TQ1_0,
    GgmlType.TQ2_0,
    GgmlType.Q1_0,
    GgmlType.Q2_0,
]


@dataclass(frozen=True, kw_only=True)
class LinearCase(SmallCase):
    """Linear maps."""

    family: ClassVar[str] = "linear"

    @property
    def gpu_bound(self) -> float:
        return 6e-3  # several, one after the other


def floats(small: SmallGraph, rows: int, width: int) -> o.Value:
    x = small.embed(small.random(5, width))
    return small.linear(small.select(x), small.random(rows, width), small.random(rows))


def of_a_format(small: SmallGraph, type: GgmlType) -> o.Value:
    """Rows and columns that are no whole tiles; the embedding is of the same format."""
    columns = 512 if type.block_size > 32 else 416
    x = small.value(columns)
    small.ops.append(o.Embed(weight=small.weight(small.random(5, columns), type), out=x))
    y = small.linear(x, small.random(70, columns, scale=0.05), type=type)
    return small.select(y)


def scaled(small: SmallGraph, residual: bool) -> o.Value:
    """Bias and product are scaled, what is added to them is not."""
    x = small.embed(small.random(5, 50))
    y = small.value(50)
    weight, bias = small.weight(small.random(50, 50)), small.weight(small.random(50))
    small.ops.append(o.Linear(source=x, out=y, weight=weight, bias=bias, scale=0.3))
    return small.select(small.add(x, y) if residual else y)


def scaled_gate_and_up(small: SmallGraph) -> o.Value:
    x, parts = small.embed(small.random(5, 50)), []
    for scale in (0.3, 2.0):
        parts.append(small.value(70))
        weight, bias = small.weight(small.random(70, 50)), small.weight(small.random(70))
        linear = o.Linear(source=x, out=parts[-1], weight=weight, bias=bias, scale=scale)
        small.ops.append(linear)
    out = small.value(70)
    small.ops.append(o.Activate(gate=parts[0], up=parts[1], out=out, kind=o.Activation.SILU))
    return small.select(out)


def parts_of_one_tensor(small: SmallGraph, gated: bool, type: GgmlType) -> o.Value:
    """Two linear maps are rows of the same matrix and of the same bias."""
    x = small.embed(small.random(5, 256))
    first, second = (37, 37) if gated else (37, 70)
    matrix = small.weight(small.random(first + second, 256, scale=0.1), type)
    bias = small.weight(small.random(first + second))
    parts = []
    for at, rows in ((0, first), (first, second)):
        parts.append(small.value(rows))
        small.ops.append(
            o.Linear(
                source=x,
                out=parts[-1],
                weight=o.Weight(matrix.name, (rows, 256), at, first + second),
                bias=o.Weight(bias.name, (rows,), at, first + second),
            )
        )
    if gated:
        out = small.value(first)
        kind = o.Activation.GELU_TANH
        small.ops.append(o.Activate(gate=parts[0], up=parts[1], out=out, kind=kind))
    else:
        left, right = (small.linear(part, small.random(19, part.width)) for part in parts)
        out = small.add(left, right)
    return small.select(out)


def of_one_input(small: SmallGraph, norm: bool) -> o.Value:
    """Three matrices of different sizes and types, one with a bias, share their input."""
    x = small.embed(small.random(5, 256, scale=2))
    if norm:
        x = small.norm(x, small.random(256, offset=1, scale=0.2))
    parts = [
        small.linear(x, small.random(70, 256), small.random(70), GgmlType.Q8_0),
        small.linear(x, small.random(33, 256), None, GgmlType.Q4_K),
        small.linear(x, small.random(50, 256), None, GgmlType.F16),
    ]
    joined = small.linear(parts[0], small.random(19, 70))
    for part in parts[1:]:
        joined = small.add(joined, small.linear(part, small.random(19, part.width)))
    return small.select(joined)


def gate_and_up_with_biases(small: SmallGraph, types: tuple[GgmlType, GgmlType]) -> o.Value:
    x = small.embed(small.random(5, 256))
    gate = small.linear(x, small.random(75, 256, scale=0.1), small.random(75), types[0])
    up = small.linear(x, small.random(75, 256, scale=0.1), small.random(75), types[1])
    out = small.value(75)
    small.ops.append(o.Activate(gate=gate, up=up, out=out, kind=o.Activation.SILU))
    return small.select(out)


def residual_of_linear_and_of_norm(small: SmallGraph) -> o.Value:
    stream = small.embed(small.random(5, 50))
    stream = small.add(stream, small.linear(stream, small.random(50, 50), small.random(50)))
    normed = small.norm(stream, small.random(50, offset=1))
    return small.select(small.add(stream, normed))


def case(
    name: str, make: partial[o.Value], *, quantized: bool = False, gpu: Gpu = Gpu.DEVICE
) -> LinearCase:
    error = QUANTIZED if quantized else FLOAT
    return LinearCase(name=name, make=make, error=error, quantized=quantized, gpu=gpu)


CASES = [
    *(
        case(f"floats-{rows}x{width}", partial(floats, rows=rows, width=width))
        for rows in (1, 15, 16, 33, 130)
        for width in (1, 31, 100)
    ),
    *(
        case(
            f"format-{type.name}",
            partial(of_a_format, type=type),
            quantized=type.block_size > 1,
            gpu=Gpu.INTERPRETER,
        )
        for type in FORMATS
    ),
    *(case(f"scaled-{added}", partial(scaled, residual=added)) for added in (False, True)),
    case("scaled-gate-and-up", partial(scaled_gate_and_up), gpu=Gpu.REFUSED),
    *(
        case(
            f"parts-of-one-tensor-{type.name}-{gated}",
            partial(parts_of_one_tensor, gated=gated, type=type),
            quantized=True,
        )
        for type in (GgmlType.F32, GgmlType.F16, GgmlType.Q8_0, GgmlType.Q4_K)
        for gated in (False, True)
    ),
    *(
        case(f"of-one-input-{norm}", partial(of_one_input, norm=norm), quantized=True)
        for norm in (False, True)
    ),
    *(
        case(
            f"gate-and-up-{types[0].name}-{types[1].name}",
            partial(gate_and_up_with_biases, types=types),
            quantized=True,
        )
        for types in ((GgmlType.F32, GgmlType.F32), (GgmlType.Q4_0, GgmlType.Q6_K))
    ),
    *(
        case(
            f"gate-and-up-{type.name}",
            partial(gate_and_up_with_biases, types=(type, type)),
            quantized=True,
            gpu=Gpu.INTERPRETER,
        )
        for type in (GgmlType.IQ3_XXS, GgmlType.IQ1_M)
    ),
    case("residuals", partial(residual_of_linear_and_of_norm), gpu=Gpu.INTERPRETER),
]
