"""Cases of operations on rows: embeddings, norms, activations, gates, soft caps.

Every graph ends in a `Select`, which is where a model's last layer cuts off the tokens that
nobody asks about; a value that is read by nothing else becomes the logits.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ingot.gguf import GgmlType
from ingot.graph import ops as o
from ops.case import Gpu, SmallCase
from ops.small_graph import SmallGraph

WIDTHS = [1, 2, 15, 16, 17, 63, 64, 65, 100, 257]
COPIED = 1e-6
NORM = 1e-5  # DESIGN allows 1e-4; sums of float32 in sixteen lanes do better
FUNCTION = 2e-6


@dataclass(frozen=True, kw_only=True)
class RowsCase(SmallCase):
    """Operations on rows."""

    family: ClassVar[str] = "rows"

    @property
    def gpu_bound(self) -> float:
        return 1e-2  # products and squares of halves, of which few are much larger than the others


def embedding(small: SmallGraph, width: int) -> o.Value:
    return small.select(small.embed(small.random(5, width), scale=width**0.5))


def quantized_embedding(small: SmallGraph, type: GgmlType) -> o.Value:
    out = small.value(512)
    small.ops.append(o.Embed(weight=small.weight(small.random(5, 512), type), out=out))
    return small.select(out)


def embedding_of_positions_and_type(
    small: SmallGraph, positions: bool, kind: bool, type: GgmlType
) -> o.Value:
    """Rows of other tables are added; of the types, the first if nothing is said."""
    out = small.value(96)
    types = small.weight(small.random(3, 96), type)
    small.ops.append(
        o.Embed(
            weight=small.weight(small.random(5, 96), type),
            out=out,
            scale=1.5,
            positions=small.weight(small.random(1024, 96), type) if positions else None,
            types=types if kind else None,
        )
    )
    return small.select(out)


def norm(small: SmallGraph, kind: o.NormKind, width: int, bias: bool) -> o.Value:
    """Rows far from zero and rows so small that epsilon decides."""
    rows = small.random(5, width) * np.float32([[1], [1], [1e-3], [1e4], [1]])
    rows[1] += 3
    rows[4] = 0
    x = small.embed(rows)
    weight = small.random(width, offset=1, scale=0.3)
    return small.select(small.norm(x, weight, small.random(width) if bias else None, kind, 1e-5))


def norm_without_weight(small: SmallGraph, kind: o.NormKind) -> o.Value:
    return small.select(small.norm(small.embed(small.random(5, 33)), None, None, kind))


def norm_of_runs_without_weight(small: SmallGraph, run: int) -> o.Value:
    x = small.embed(small.random(5, 3 * run) * np.repeat(np.float32([1, 10, 0.1]), run))
    out = small.value(3 * run)
    small.ops.append(
        o.Norm(source=x, out=out, weight=None, kind=o.NormKind.RMS, epsilon=1e-6, run=run)
    )
    return small.select(out)


def xielu(small: SmallGraph, width: int) -> o.Value:
    x = small.embed(small.random(5, width, scale=3))
    out = small.value(width)
    small.ops.append(o.Xielu(source=x, out=out, rise=0.7, fall=1.1, slope=0.5))
    return small.select(out)


def norm_of_heads(small: SmallGraph, size: int) -> o.Value:
    """The weight is as long as a head: each head is normalized by itself."""
    x = small.embed(small.random(5, 3 * size) * np.repeat(np.float32([1, 10, 0.1]), size))
    return small.select(small.norm(x, small.random(size, offset=1)))


def norm_of_heads_by_their_own_weights(small: SmallGraph, size: int, kind: o.NormKind) -> o.Value:
    """The weight has a row for each head."""
    x = small.embed(small.random(5, 3 * size) * np.repeat(np.float32([1, 10, 0.1]), size))
    weight, bias = (small.random(3, size, offset=1) for _ in range(2))
    return small.select(small.norm(x, weight, bias, kind, 1e-3))


def activation(small: SmallGraph, kind: o.Activation, gated: bool, width: int) -> o.Value:
    rows = small.random(5, 2 * width, scale=3)
    rows[0] = 0
    rows[1, :width] = np.linspace(-30, 30, width)
    x = small.embed(rows)
    gate = small.pick(x, 0, width)
    up = small.pick(x, width, 2 * width) if gated else None
    out = small.value(width)
    small.ops.append(o.Activate(gate=gate, up=up, out=out, kind=kind))
    return small.select(out)


def gated_rows(small: SmallGraph, width: int, residual: bool, sigmoid: bool = True) -> o.Value:
    x = small.embed(small.random(5, width + 1, scale=4))
    gate, source, out = small.pick(x, 0, 1), small.pick(x, 1, width + 1), small.value(width)
    small.ops.append(o.GateRows(source=source, gate=gate, out=out, sigmoid=sigmoid))
    return small.select(small.add(source, out) if residual else out)


def softcap(small: SmallGraph, width: int) -> o.Value:
    x = small.select(small.embed(small.random(5, width, scale=40)))
    out = small.value(width)
    small.ops.append(o.SoftCap(source=x, out=out, cap=30.0))
    return out


def scaled(small: SmallGraph, width: int, weights: int) -> o.Value:
    """By a factor, and by no weight, one, or one for each element."""
    x = small.embed(small.random(5, width))
    weight = small.weight(small.random(weights)) if weights else None
    out = small.value(width)
    small.ops.append(o.Scale(source=x, out=out, factor=0.7, weight=weight))
    return small.select(out)


def peaks(small: SmallGraph, width: int, far: float = 100) -> o.Value:
    """Of rows far from zero, and of one without any."""
    rows = small.random(5, width) + np.float32([[0], [3], [-3], [far], [0]])
    rows[4] = 2
    x = small.embed(rows)
    out = small.value(width)
    small.ops.append(o.KeepPeaks(source=x, out=out, deviations=0.3))
    return small.select(out)


def sum_alone(small: SmallGraph, width: int) -> o.Value:
    """Of two values that are read elsewhere too, so that no operation before takes it."""
    x = small.embed(small.random(5, width))
    normed = small.norm(x, small.random(width, offset=1))
    return small.select(small.add(small.add(x, normed), normed))


CASES = [
    *(RowsCase(name=f"embed-{n}", make=partial(embedding, width=n), error=COPIED) for n in WIDTHS),
    *(
        RowsCase(
            name=f"embed-{type.name}", make=partial(quantized_embedding, type=type), error=COPIED
        )
        for type in (GgmlType.F16, GgmlType.Q4_K, GgmlType.Q6_K, GgmlType.IQ4_XS)
    ),
    *(
        RowsCase(
            name=f"embed-positions-{positions}-types-{kind}-{type.name}",
            make=partial(
                embedding_of_positions_and_type, positions=positions, kind=kind, type=type
            ),
            error=COPIED,
        )
        for type in (GgmlType.F32, GgmlType.F16, GgmlType.Q8_0)
        for positions, kind in ((True, False), (False, True), (True, True))
    ),
    *(
        RowsCase(
            name=f"norm-{kind}-{width}-{bias}",
            make=partial(norm, kind=kind, width=width, bias=bias),
            error=NORM,
            gpu=Gpu.INTERPRETER if width == 17 else Gpu.NOWHERE,
        )
        for kind in o.NormKind
        for width in WIDTHS
        for bias in (False, True)
    ),
    *(
        RowsCase(
            name=f"norm-{kind}-without-weight",
            make=partial(norm_without_weight, kind=kind),
            error=NORM,
            gpu=Gpu.INTERPRETER,
        )
        for kind in o.NormKind
    ),
    *(
        RowsCase(
            name=f"norm-runs-{run}-without-weight",
            make=partial(norm_of_runs_without_weight, run=run),
            error=NORM,
            gpu=Gpu.INTERPRETER if run == 7 else Gpu.DEVICE,
        )
        for run in (1, 7, 16, 40)
    ),
    *(
        RowsCase(
            name=f"xielu-{width}",
            make=partial(xielu, width=width),
            error=FUNCTION,
            gpu=Gpu.INTERPRETER if width == 17 else Gpu.DEVICE,
        )
        for width in WIDTHS
    ),
    *(
        RowsCase(
            name=f"norm-heads-{size}",
            make=partial(norm_of_heads, size=size),
            error=NORM,
            gpu=Gpu.INTERPRETER if size == 7 else Gpu.DEVICE,
        )
        for size in (1, 7, 16, 40)
    ),
    *(
        RowsCase(
            name=f"norm-heads-own-{kind}-{size}",
            make=partial(norm_of_heads_by_their_own_weights, size=size, kind=kind),
            error=NORM,
            gpu=Gpu.INTERPRETER if size == 7 else Gpu.DEVICE,
        )
        for kind in o.NormKind
        for size in (1, 7, 16, 40)
    ),
    *(
        RowsCase(
            name=f"activate-{kind}-{width}-{gated}",
            make=partial(activation, kind=kind, gated=gated, width=width),
            error=FUNCTION,
            gpu=Gpu.INTERPRETER if width == 17 and gated else Gpu.DEVICE,
        )
        for kind in o.Activation
        for width in (1, 17, 100)
        for gated in (False, True)
    ),
    *(
        RowsCase(
            name=f"gate-rows-{width}-{residual}",
            make=partial(gated_rows, width=width, residual=residual),
            error=5e-5,
            gpu=Gpu.INTERPRETER if width == 45 else Gpu.DEVICE,
        )
        for width in (1, 16, 45)
        for residual in (False, True)
    ),
    *(
        RowsCase(
            name=f"weigh-rows-{width}",
            make=partial(gated_rows, width=width, residual=width > 1, sigmoid=False),
            error=5e-5,
            gpu=Gpu.INTERPRETER if width == 45 else Gpu.DEVICE,
        )
        for width in (1, 16, 45)
    ),
    *(
        RowsCase(
            name=f"scale-{width}-{weights}",
            make=partial(scaled, width=width, weights=weights),
            error=COPIED,
            gpu=Gpu.INTERPRETER if width == 17 else Gpu.NOWHERE,
        )
        for width in (1, 17, 100)
        for weights in sorted({0, 1, width})
    ),
    *(
        RowsCase(
            name=f"peaks-{width}",
            make=partial(peaks, width=width),
            error=NORM,
        )
        for width in (1, 17, 100)
    ),
    RowsCase(  # half floats hold no small differences of large numbers
        name="peaks-near", make=partial(peaks, width=17, far=4), error=NORM, gpu=Gpu.INTERPRETER
    ),
    *(
        RowsCase(
            name=f"add-{width}",
            make=partial(sum_alone, width=width),
            error=NORM,
            gpu=Gpu.INTERPRETER if width == 17 else Gpu.DEVICE,
        )
        for width in (1, 17, 100)
    ),
    *(
        RowsCase(
            name=f"softcap-{width}",
            make=partial(softcap, width=width),
            error=FUNCTION,
            gpu=Gpu.INTERPRETER if width == 97 else Gpu.DEVICE,
        )
        for width in (1, 16, 97)
    ),
]
