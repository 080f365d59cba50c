"""Cases of operations on the heads of a row: matrices, elements, scales and rotations."""

from dataclasses import dataclass
from typing import ClassVar

from ingot.gguf import GgmlType
from ingot.graph import ops as o
from ingot.graph import rope
from ops.case import Case, Gpu, Way
from ops.small_graph import SmallGraph

FLOAT = 1e-4


@dataclass(frozen=True, kw_only=True)
class HeadLinearCase(Case):
    """A linear map of every head, with elements that it leaves as they are."""

    family: ClassVar[str] = "attention"

    heads: int = 3
    inputs: int = 20
    results: int = 33
    kept: int = 0
    beside: int = 0  # rows of a head's matrix before and after those that are read
    transposed: bool = False
    type: GgmlType = GgmlType.F32
    tokens: int = 23

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        x = small.embed(small.random(self.tokens, self.heads * (self.inputs + self.kept)))
        rows, columns = self.results, self.inputs
        if self.transposed:
            rows, columns = columns, rows
        matrix = small.random(self.heads * (rows + 2 * self.beside), columns, scale=0.2)
        out = small.value(self.heads * (self.kept + self.results))
        small.ops.append(
            o.HeadLinear(
                source=x,
                out=out,
                weight=small.weight(matrix, self.type),
                heads=self.heads,
                first=self.beside,
                rows=rows,
                transposed=self.transposed,
            )
        )
        return small, small.select(out)

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((), 0), ((1, 6), 0), ((), self.tokens)

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        return (((), 1),)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return FLOAT


@dataclass(frozen=True, kw_only=True)
class PickCase(Case):
    """Some elements of every head."""

    family: ClassVar[str] = "attention"

    heads: int
    size: int
    first: int
    of: int  # elements that a head has
    gpu: Gpu = Gpu.INTERPRETER

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        x = small.embed(small.random(self.tokens, self.heads * self.of))
        out = small.value(self.heads * self.size)
        small.ops.append(o.PickHeads(source=x, out=out, heads=self.heads, first=self.first))
        return small, small.select(out)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return 0.0


@dataclass(frozen=True, kw_only=True)
class TemperCase(Case):
    """Queries that grow with their positions."""

    family: ClassVar[str] = "attention"

    offset: int = 0
    tokens: int = 20
    gpu: Gpu = Gpu.INTERPRETER

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        x = small.embed(small.random(self.tokens, 19))
        out = small.value(19)
        small.ops.append(o.Temper(source=x, out=out, scale=0.3, length=8, offset=self.offset))
        return small, small.select(out)

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((), 0), ((7,), 5)

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        return (((), 1),)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return 1e-6


@dataclass(frozen=True, kw_only=True)
class RopeCase(Case):
    """Heads that are rotated without being stored, because they read what others stored."""

    family: ClassVar[str] = "attention"

    layout: o.RopeLayout
    size: int
    rotary: int
    tokens: int = 50

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        x = small.embed(small.random(self.tokens, 3 * self.size))
        out = small.value(x.width)
        speeds, _ = rope.frequencies(self.rotary, 100.0)
        small.ops.append(
            o.Rope(
                source=x,
                out=out,
                head_size=self.size,
                frequencies=speeds,
                layout=self.layout,
                magnitude=1.3,
            )
        )
        return small, small.select(out)

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((), 0), ((7,), min(20, self.tokens - 7))

    @property
    def gpu_ways(self) -> tuple[Way, ...]:
        return (((), 1),)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return 1e-6


CASES = [
    *(
        HeadLinearCase(
            inputs=inputs, results=results, kept=kept, beside=beside, transposed=transposed
        )
        for inputs, results, kept, beside in [(1, 1, 0, 0), (20, 33, 5, 0), (64, 40, 0, 3)]
        for transposed in (False, True)
    ),
    *(
        HeadLinearCase(inputs=32, results=64, type=kind, transposed=transposed, threads=2)
        for kind in (GgmlType.F16, GgmlType.BF16, GgmlType.Q8_0, GgmlType.Q4_0)
        for transposed in (False, True)
    ),
    *(
        HeadLinearCase(
            heads=2,
            inputs=inputs,
            results=results,
            kept=kept,
            beside=beside,
            type=type,
            transposed=transposed,
            tokens=5,
            gpu=Gpu.INTERPRETER,
        )
        for inputs, results, kept, beside, type, transposed in [
            (20, 33, 5, 0, GgmlType.F32, False),
            (20, 33, 5, 3, GgmlType.F32, True),
            (64, 40, 0, 0, GgmlType.Q8_0, False),
            (40, 64, 16, 8, GgmlType.Q5_0, True),
            (32, 20, 0, 4, GgmlType.Q4_0, False),
        ]
    ),
    *(TemperCase(offset=offset) for offset in (0, 1)),
    *(
        RopeCase(layout=layout, size=size, rotary=rotary)
        for layout in o.RopeLayout
        for size, rotary in ((16, 16), (18, 6))
    ),
    *(
        RopeCase(layout=layout, size=18, rotary=6, tokens=9, gpu=Gpu.INTERPRETER)
        for layout in o.RopeLayout
    ),
    PickCase(heads=3, size=5, first=4, of=9),
    PickCase(heads=1, size=1, first=0, of=2),
]
