"""Cases of convolutions and state spaces, on odd sizes."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ingot.graph import ops as o
from ops.case import Case, Gpu, Way
from ops.small_graph import Floats, SmallGraph

FLOAT = 2e-5


@dataclass(frozen=True, kw_only=True)
class RecurrentCase(Case):
    """A prompt may be cut anywhere, and a token's result does not depend on it."""

    family: ClassVar[str] = "recurrent"
    same_bits: ClassVar[bool] = True

    tokens: int = 70

    @property
    def ways(self) -> tuple[Way, ...]:
        """Whole, in chunks shorter than the taps and across runs, and token by token."""
        return ((), 0), ((1, 2, 30, 1, 1), 0), ((31,), min(8, self.tokens)), ((), self.tokens)

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        """Across runs, with a part of a chunk at both ends, then a generation."""
        return (((self.tokens - 5,), 3),)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return FLOAT

    @property
    def gpu_bound(self) -> float:
        return 1e-4  # inputs are halves, so that none is rounded on its way


def halves(rows: Floats) -> Floats:
    """Numbers that a GPU's linear layers pass on as they are."""
    return rows.astype(np.float16).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Conv(RecurrentCase):
    """A convolution."""

    channels: int
    taps: int = 4
    bias: bool = True
    silu: bool = True

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.channels)
        source = small.embed(halves(small.random(self.tokens, self.channels)))
        out = small.value(self.channels)
        small.ops.append(
            o.CausalConv(
                source=source,
                out=out,
                weight=small.weight(small.random(self.channels, self.taps)),
                bias=small.weight(small.random(self.channels)) if self.bias else None,
                silu=self.silu,
                state=0,
            )
        )
        return small, small.select(out)


@dataclass(frozen=True, kw_only=True)
class Scan(RecurrentCase):
    """A state space."""

    heads: int
    size: int = 1
    groups: int = 1
    states: int = 16
    one_decay: bool = False

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.heads + self.states)
        channels, wide = self.heads * self.size, self.groups * self.states
        widths = [channels, self.heads, wide, wide]
        rows = small.random(self.tokens, sum(widths))
        steps = slice(channels, channels + self.heads)
        rows[:, steps] = np.abs(rows[:, steps]) * 0.5
        everything = small.embed(halves(rows))
        ends = np.cumsum([0, *widths]).tolist()
        x, step, b, c = (small.pick(everything, *span) for span in pairwise(ends))
        out = small.value(channels)
        decay = small.random(self.heads, 1 if self.one_decay else self.states)
        skip = small.random(self.heads, 1) if self.one_decay else small.random(self.heads)
        small.ops.append(
            o.StateScan(
                x=x,
                step=step,
                b=b,
                c=c,
                out=out,
                decay=small.weight(-np.abs(decay)),
                skip=small.weight(skip),
                groups=self.groups,
                state=0,
            )
        )
        return small, small.select(out)


@dataclass(frozen=True, kw_only=True)
class Delta(RecurrentCase):
    """A gated delta rule."""

    heads: int
    key_heads: int = 1
    key_size: int = 8
    value_size: int = 16
    tiled: bool = False

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.heads + self.key_size)
        keys, values = self.key_heads * self.key_size, self.heads * self.value_size
        widths = [keys, keys, values, self.heads, self.heads]
        everything = small.embed(halves(small.random(self.tokens, sum(widths))))
        ends = np.cumsum([0, *widths]).tolist()
        q, k, v, step, rate = (small.pick(everything, *span) for span in pairwise(ends))
        out = small.value(values)
        small.ops.append(
            o.DeltaRule(
                query=q,
                key=k,
                value=v,
                step=step,
                rate=rate,
                out=out,
                decay=small.weight(-np.abs(small.random(self.heads))),
                bias=small.weight(small.random(self.heads)),
                key_heads=self.key_heads,
                tiled=self.tiled,
                epsilon=1e-6,
                state=0,
            )
        )
        return small, small.select(out)


ON_GPU: list[RecurrentCase] = [
    Conv(channels=7, taps=3, tokens=40),
    Conv(channels=21, taps=4, bias=False, silu=False, tokens=40),
    Conv(channels=5, taps=34, tokens=45),
    Scan(heads=5, states=3, tokens=38),
    Scan(heads=6, size=5, groups=2, states=9, tokens=38),
    Scan(heads=4, size=11, groups=2, states=7, one_decay=True),
    Delta(heads=2, key_size=8, value_size=21),
    Delta(heads=4, key_heads=2, key_size=7, value_size=5, tiled=True, tokens=40),
]

CASES: list[RecurrentCase] = [
    Delta(heads=1, key_size=1, value_size=1),
    Delta(heads=6, key_heads=3, key_size=7, value_size=21),
    Delta(heads=6, key_heads=3, key_size=7, value_size=21, tiled=True),
    Delta(heads=4, key_heads=2, key_size=33, value_size=16, threads=2),
    Delta(heads=2, key_size=128, value_size=128, tokens=130),
    *(Conv(channels=n, taps=k) for n, k in [(1, 4), (7, 3), (16, 2), (37, 4), (300, 5)]),
    Conv(channels=37, taps=3, bias=False),
    Conv(channels=21, taps=3, bias=False, silu=False),
    Conv(channels=5, taps=40, tokens=90),  # more taps than a run has tokens
    Scan(heads=37),
    Scan(heads=1, states=1),
    Scan(heads=150, states=3),
    Scan(heads=6, size=11, groups=3, states=7, one_decay=True),
    Scan(heads=4, size=16, groups=2, states=33, one_decay=True),
    Scan(heads=3, size=64, states=128, one_decay=True, tokens=40),
    Scan(heads=6, size=5, groups=2, states=9),
    *(replace(case, gpu=Gpu.INTERPRETER) for case in ON_GPU),
    Delta(heads=4, key_heads=2, key_size=128, value_size=128, tokens=130, gpu=Gpu.DEVICE),
    Scan(heads=3, size=64, states=128, one_decay=True, tokens=140, gpu=Gpu.DEVICE),
    Scan(heads=150, states=16, tokens=100, gpu=Gpu.DEVICE),
]
