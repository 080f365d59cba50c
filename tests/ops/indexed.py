"""Cases of sparse attention: an indexer chooses the positions of a cache of latents.

Numbers of the indexer that are small and whole make many scores equal: then positions decide. The
logits may be the chosen positions themselves.
"""

from dataclasses import dataclass
from typing import ClassVar

from ingot.graph import KvLayer, rope
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from ops.attention import CPU_KV_TYPES, FLOAT, HALVES
from ops.case import Case, Gpu, Way
from ops.small_graph import SmallGraph


@dataclass(frozen=True, kw_only=True)
class IndexedCase(Case):
    """Two layers that see the positions which one indexer chooses."""

    family: ClassVar[str] = "attention"

    heads: int = 3
    latent: int = 32
    rotary: int = 8
    index_heads: int = 5
    index_size: int = 24
    index_rotary: int = 8
    count: int = 9
    whole: bool = False  # numbers of the indexer, and no rotation
    positions: bool = False  # are the logits
    dense: bool = False  # all positions are seen, whatever is chosen
    tokens: int = 70
    chunks: tuple[int, ...] = (1, 20, 5)
    generated: int = 9

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        size = self.rotary + self.latent
        widths = [self.heads * size, self.rotary, self.latent]
        widths += [self.index_heads * self.index_size, self.index_size, self.index_heads]
        rows = small.random(self.tokens, sum(widths))
        if self.whole:
            first = sum(widths[:3])
            rows[:, first:] = rows[:, first:].round()
        x = small.embed(rows)
        parts, at = [], 0
        for width in widths:
            parts.append(small.pick(x, at, at + width))
            at += width
        query, key, latent, *indexer = parts
        chosen = self.choose(small, *indexer)
        if self.positions:
            return small, small.select(chosen)
        seen = None if self.dense else chosen
        first = self.attend(small, query, key, latent, seen)
        # Queries of the second are made of what the first gave.
        matrix = small.random(query.width, first.width, scale=2 * first.width**-0.5)
        query, key = (
            small.linear(first, matrix),
            small.pick(x, query.width, query.width + key.width),
        )
        return small, small.select(self.attend(small, query, key, latent, seen))

    def choose(
        self, small: SmallGraph, query: o.Value, key: o.Value, head_weights: o.Value
    ) -> o.Value:
        """The indexer; its key is kept as a latent is: what is rotated, then the rest."""
        rotated = small.pick(key, 0, self.index_rotary)
        rest = small.pick(key, self.index_rotary, self.index_size)
        if not self.whole:
            query = self.turned(small, query, self.index_size)
            rotated = self.turned(small, rotated, self.index_rotary)
        small.kv_layers.append(KvLayer(1, self.index_size, 0, shared_value=rest.width))
        small.ops.append(o.WriteKv(key=rotated, value=rest, kv_layer=0, shared=True))
        chosen = small.value(self.count)
        small.ops.append(
            o.ChoosePositions(
                query=query,
                head_weights=head_weights,
                out=chosen,
                kv_layer=0,
                heads=self.index_heads,
            )
        )
        return chosen

    def attend(
        self,
        small: SmallGraph,
        query: o.Value,
        key: o.Value,
        latent: o.Value,
        chosen: o.Value | None,
    ) -> o.Value:
        size, number = self.rotary + self.latent, len(small.kv_layers)
        query, key = (self.turned(small, v, n) for v, n in ((query, size), (key, self.rotary)))
        small.kv_layers.append(KvLayer(1, size, 0, shared_value=self.latent))
        small.ops.append(o.WriteKv(key=key, value=latent, kv_layer=number, shared=True))
        out = small.value(self.heads * self.latent)
        small.ops.append(
            o.Attend(
                query=query,
                chosen=chosen,
                out=out,
                kv_layer=number,
                heads=self.heads,
                kv_heads=1,
                scale=2 * size**-0.5,
            )
        )
        return out

    def turned(self, small: SmallGraph, source: o.Value, size: int) -> o.Value:
        out = small.value(source.width)
        small.ops.append(
            o.Rope(
                source=source,
                out=out,
                head_size=size,
                frequencies=rope.frequencies(8, 100.0)[0],
                layout=o.RopeLayout.INTERLEAVED,
            )
        )
        return out

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((), 0), (self.chunks, self.generated)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return 0 if self.positions else FLOAT

    @property
    def gpu_bound(self) -> float:
        if self.positions:
            return 1e-9
        # Twice that of one attention: queries of the second are made of the first.
        return 8 * HALVES * (4 if self.kv_type is KvType.Q8_0 else 1)


CASES: list[Case] = [
    *(IndexedCase(count=count) for count in (1, 2, 31, 32, 33, 69, 70, 100)),
    *(
        IndexedCase(whole=True, positions=positions, index_heads=heads, threads=threads)
        for positions in (False, True)
        for heads, threads in ((1, 1), (2, 3), (17, 2))
    ),
    IndexedCase(positions=True),
    *(
        IndexedCase(heads=heads, latent=latent, index_heads=other, index_size=size)
        for heads, latent, other, size in (
            (1, 16, 1, 9),
            (33, 21, 3, 33),
            (5, 64, 64, 128),
        )
    ),
    *(IndexedCase(latent=56, index_size=32, kv_type=kind) for kind in CPU_KV_TYPES),
    *(
        IndexedCase(index_size=32, kv_type=kind, positions=True, whole=True)
        for kind in (KvType.F16, KvType.BF16)  # which hold small whole numbers as they are
    ),
    *(  # past the parts of a generation
        IndexedCase(
            tokens=1100, count=count, chunks=(500,), generated=5, kv_type=KvType.F16, threads=2
        )
        for count in (40, 600)
    ),
    *(  # whole numbers: queries are rounded there, and other positions would be chosen
        IndexedCase(
            tokens=tokens,
            count=count,
            chunks=(tokens // 2,),
            generated=2,
            kv_type=kind,
            whole=True,
            positions=positions,
            heads=heads,
            latent=56,
            index_heads=other,
            index_size=32,
            gpu=gpu,
        )
        for tokens, count, kind, positions, heads, other, gpu in (
            (12, 6, KvType.F32, False, 3, 5, Gpu.INTERPRETER),
            (20, 6, KvType.F16, True, 1, 3, Gpu.INTERPRETER),
            (8, 20, KvType.Q8_0, False, 2, 2, Gpu.INTERPRETER),
            (300, 90, KvType.F16, True, 3, 64, Gpu.DEVICE),
            (300, 90, KvType.F16, False, 40, 17, Gpu.DEVICE),
        )
    ),
]
