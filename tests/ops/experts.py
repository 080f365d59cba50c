"""Cases of experts: routing, their linear maps and the mix.

Scores are picked from a token's embedding, so that every choice is known and clear; the rest of
the row is the input of the experts.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ingot import _native
from ingot.gguf import GgmlType
from ingot.graph import ops as o
from ops.case import Case, Gpu, Way
from ops.small_graph import Floats, SmallGraph

FLOAT = 5e-5
QUANTIZED = 2e-3  # inputs are rounded to 14 (prompt) or 15 bits, twice on the way
IN_TILES = 4e-2  # AMX rounds a prompt's weights and inputs to BF16
BLOCK_TYPES = [kind for kind in GgmlType if kind.block_size > 1 and _native.has_linear(kind)]
TYPES = [kind for kind in GgmlType if kind.block_size > 1 and _native.has_linear(kind)]
# What Ingot reads but does not write: blocks of random bits.
UNWRITTEN = {
    GgmlType.IQ1_S,
    GgmlType.IQ1_M,
    GgmlType.IQ2_XXS,
    GgmlType.IQ2_XS,
    GgmlType.IQ2_S,
    GgmlType.IQ3_XXS,
    GgmlType.IQ3_S,
}
TYPES = [GgmlType.F32, GgmlType.F16, GgmlType.BF16, *BLOCK_TYPES]


def clear_scores(small: SmallGraph, tokens: int, experts: int) -> Floats:
    """Scores of which no two of a token are near: rounding must not change a choice."""
    steps = np.linspace(-2, 2, experts, dtype=np.float32)
    return np.stack([small.rng.permutation(steps) for _ in range(tokens)])


@dataclass(frozen=True, kw_only=True)
class ExpertsCase(Case):
    """A layer of experts."""

    family: ClassVar[str] = "experts"

    experts: int = 5
    used: int = 2
    width: int = 40
    inner: int = 33
    tokens: int = 9
    gating: o.Gating = o.Gating.SOFTMAX
    normalize: bool = False
    scale: float = 1.0
    near: float = 0.0
    selection_bias: bool = False
    expert_scales: bool = False
    fused_gate: bool = False  # gate and up are rows of one tensor
    groups: int = 1
    groups_used: int = 1
    group_best: int = 1
    bias: bool = False
    gated: bool = True
    residual: bool = False
    activation: o.Activation = o.Activation.SILU
    type: GgmlType = GgmlType.F32
    down_type: GgmlType | None = None

    def experts_of(
        self, small: SmallGraph, source: o.Value, choice: o.Value, rows: int, columns: int
    ) -> o.ExpertLinear:
        kind = self.down_type or self.type if source.width != self.width else self.type
        matrix = small.random(self.experts, rows, columns, scale=columns**-0.5)
        return o.ExpertLinear(
            source=source,
            choice=choice,
            out=small.value(self.used * rows),
            weight=small.weight(matrix, kind),
            bias=small.weight(small.random(self.experts, rows)) if self.bias else None,
        )

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        rows = small.random(self.tokens, self.experts + self.width)
        rows[:, : self.experts] = clear_scores(small, self.tokens, self.experts)
        embedded = small.embed(rows)
        scores = small.pick(embedded, 0, self.experts)
        x = small.pick(embedded, self.experts, self.experts + self.width)
        choice = small.value(2 * self.used)
        bias = small.weight(small.random(self.experts)) if self.selection_bias else None
        scales = small.weight(small.random(self.experts, offset=1)) if self.expert_scales else None
        small.ops.append(
            o.Route(
                scores=scores,
                out=choice,
                used=self.used,
                gating=self.gating,
                normalize=self.normalize,
                scale=self.scale,
                near=self.near,
                selection_bias=bias,
                expert_scales=scales,
                groups=self.groups,
                groups_used=self.groups_used,
                group_best=self.group_best,
            )
        )
        gate = self.experts_of(small, x, choice, self.inner, self.width)
        small.ops.append(gate)
        up = self.experts_of(small, x, choice, self.inner, self.width) if self.gated else None
        if up and self.fused_gate:
            both = self.experts_of(small, x, choice, 2 * self.inner, self.width)
            gate = replace(both, out=gate.out, rows=self.inner)
            up = replace(both, out=up.out, rows=self.inner, first=self.inner)
            small.ops[-1] = gate
        if up:
            small.ops.append(up)
        active = small.value(gate.out.width)
        small.ops.append(
            o.Activate(gate=gate.out, up=up.out if up else None, out=active, kind=self.activation)
        )
        down = self.experts_of(small, active, choice, self.width, self.inner)
        small.ops.append(down)
        mixed = small.value(self.width)
        small.ops.append(o.MixExperts(source=down.out, choice=choice, out=mixed))
        return small, small.select(small.add(x, mixed) if self.residual else mixed)

    @property
    def ways(self) -> tuple[Way, ...]:
        """A prompt whole and in pieces, and one token a step."""
        return ((), 0), ((1, 4), 0), ((), self.tokens)

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        return (((), 0),)

    @property
    def together(self) -> bool:
        return True

    @property
    def context(self) -> int:
        return max(self.tokens, 32)

    def bound(self, isa: str, way: Way) -> float:
        types = {self.type, self.down_type or self.type}
        if types <= {GgmlType.F32, GgmlType.F16, GgmlType.BF16}:
            return FLOAT
        prompt = way[1] == 0
        return IN_TILES if isa == "amx" and prompt else QUANTIZED

    @property
    def gpu_bound(self) -> float:
        return 8e-3  # weights and inputs are rounded to 11 bits, twice


SIDE_BY_SIDE = ExpertsCase(width=64, inner=32, experts=4, residual=True)
THREADS = ExpertsCase(experts=9, used=3, inner=300, width=64, tokens=40)
FEW = ExpertsCase(experts=5, used=2, width=40, inner=33, tokens=3)
ON_GPU = [
    replace(FEW, normalize=True, residual=True, scale=2.5),
    replace(FEW, gating=o.Gating.SIGMOID, selection_bias=True, used=3),
    replace(FEW, gating=o.Gating.CHOSEN_SOFTMAX, type=GgmlType.MXFP4, width=64, inner=32),
    replace(FEW, gating=o.Gating.SPARSE_MIXER, near=0.9, experts=7),
    replace(FEW, gated=False, activation=o.Activation.GELU, residual=True),
    replace(FEW, expert_scales=True, normalize=True, scale=1.7, used=3),
    *(
        replace(
            FEW,
            gating=gating,
            experts=12,
            used=4,
            groups=groups,
            groups_used=used,
            group_best=best,
            selection_bias=gating is o.Gating.SIGMOID,
        )
        for gating, groups, used, best in [
            (o.Gating.SOFTMAX, 3, 1, 1),
            (o.Gating.SIGMOID, 4, 2, 2),
        ]
    ),
    replace(
        FEW, activation=o.Activation.CLAMPED_SWIGLU, bias=True, down_type=GgmlType.Q4_0, inner=32
    ),
    replace(FEW, type=GgmlType.IQ2_XS, down_type=GgmlType.NVFP4, width=256, inner=64),
    replace(FEW, type=GgmlType.IQ1_S, down_type=GgmlType.TQ1_0, width=256, inner=256),
]

CASES = [
    ExpertsCase(),
    ExpertsCase(normalize=True, residual=True),
    ExpertsCase(scale=2.5, normalize=True),
    ExpertsCase(gating=o.Gating.SIGMOID),
    ExpertsCase(gating=o.Gating.SIGMOID, selection_bias=True, normalize=True, scale=1.7, used=3),
    ExpertsCase(gating=o.Gating.CHOSEN_SOFTMAX, used=3, bias=True),
    ExpertsCase(gating=o.Gating.CHOSEN_SOFTMAX, experts=1, used=1),
    ExpertsCase(gating=o.Gating.SPARSE_MIXER, near=0.02),
    ExpertsCase(gating=o.Gating.SPARSE_MIXER, near=0.9, used=3, experts=7),
    *(
        ExpertsCase(
            gating=gating,
            experts=experts,
            used=4,
            groups=groups,
            groups_used=used,
            group_best=best,
            selection_bias=gating is o.Gating.SIGMOID,
            tokens=30,
        )
        for gating in (o.Gating.SOFTMAX, o.Gating.SIGMOID)
        for experts, groups, used, best in [(12, 3, 1, 1), (12, 4, 2, 2), (35, 7, 3, 5)]
    ),
    ExpertsCase(expert_scales=True, normalize=True, scale=1.7, used=3),
    *(
        replace(SIDE_BY_SIDE, fused_gate=True, bias=True, type=kind, gpu=Gpu.INTERPRETER)
        for kind in (GgmlType.F32, GgmlType.Q8_0)
    ),
    ExpertsCase(used=5),
    ExpertsCase(experts=37, used=8, tokens=70),
    ExpertsCase(experts=200, used=1, tokens=3),
    ExpertsCase(experts=384, used=8, width=16, inner=5, tokens=40),  # as many as Kimi K2 has
    ExpertsCase(experts=512, used=10, width=16, inner=5, tokens=3),  # as Qwen3-Next has
    ExpertsCase(experts=3, used=2, tokens=100),
    ExpertsCase(gated=False, activation=o.Activation.GELU),
    ExpertsCase(activation=o.Activation.CLAMPED_SWIGLU, bias=True),
    *(
        ExpertsCase(width=width, inner=inner, bias=True, residual=True)
        for width in (1, 15, 100)
        for inner in (1, 31, 97, 260)
    ),
    *(  # columns of one, of several and of many tokens
        ExpertsCase(type=type, width=size, inner=2 * size, experts=3, tokens=20, bias=True)
        for type, size in ((type, max(32, type.block_size)) for type in TYPES)
    ),
    # Gate and up as floats, down in blocks; and the other way round.
    replace(SIDE_BY_SIDE, type=GgmlType.F16, down_type=GgmlType.Q8_0),
    replace(SIDE_BY_SIDE, type=GgmlType.Q4_0, down_type=GgmlType.F32),
    *(
        replace(case, threads=threads)
        for threads in (2, 3)
        for case in (
            replace(THREADS, type=GgmlType.Q8_0, inner=320),
            replace(THREADS, bias=True, residual=True),
        )
    ),
    *(replace(case, gpu=Gpu.INTERPRETER) for case in ON_GPU),
    *(replace(case, gpu=Gpu.DEVICE, tokens=70) for case in ON_GPU),
]
