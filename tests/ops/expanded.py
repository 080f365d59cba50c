"""Cases of attention over latents that are expanded: maps of queries and of mixed latents around
it, which the reference applies (the absorbed form) and the backend leaves out."""

from dataclasses import dataclass
from typing import ClassVar

from ingot.gguf import GgmlType
from ingot.graph import KvLayer, rope
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from ops.attention import CPU_KV_TYPES, FLOAT
from ops.case import Case, Way
from ops.small_graph import SmallGraph


@dataclass(frozen=True, kw_only=True)
class ExpandedCase(Case):
    """Keys and values of `heads` heads, made of latents."""

    family: ClassVar[str] = "attention"

    heads: int = 3
    latent: int = 32
    rotary: int = 8
    key: int = 20
    value: int = 13
    fused: bool = False  # one matrix makes keys and values
    softcap: float = 0.0
    type: GgmlType = GgmlType.F32
    tokens: int = 70
    expanded: bool = True

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        query, size = self.heads * (self.key + self.rotary), self.rotary + self.latent
        x = small.embed(small.random(self.tokens, query + size))
        q = small.pick(x, 0, query)
        k = small.pick(x, query, query + self.rotary)
        latent = small.pick(x, query + self.rotary, query + size)
        expansion = self.matrices(small)
        q = self.mapped(small, q, expansion.key, size, transposed=self.fused)
        q, k = (self.turned(small, value, n) for value, n in ((q, size), (k, self.rotary)))
        small.kv_layers.append(KvLayer(1, size, 0, shared_value=self.latent))
        small.ops.append(o.WriteKv(key=k, value=latent, kv_layer=0, shared=True))
        out = small.value(self.heads * self.latent)
        small.ops.append(
            o.Attend(
                query=q,
                out=out,
                kv_layer=0,
                heads=self.heads,
                kv_heads=1,
                scale=2 * (self.key + self.rotary) ** -0.5,
                softcap=self.softcap,
                expansion=expansion,
            )
        )
        return small, small.select(self.mapped(small, out, expansion.value, self.value))

    def matrices(self, small: SmallGraph) -> o.Expansion:
        scale = self.latent**-0.5
        if self.fused:
            rows = self.heads * (self.key + self.value)
            both = small.weight(small.random(rows, self.latent, scale=scale), self.type)
            key = o.HeadMatrix(weight=both, first=0, rows=self.key)
            value = o.HeadMatrix(weight=both, first=self.key, rows=self.value)
        else:
            shapes = (self.heads, self.latent, self.key), (self.heads, self.value, self.latent)
            key, value = (
                o.HeadMatrix(
                    weight=small.weight(small.random(*shape, scale=scale), self.type),
                    first=0,
                    rows=shape[1],
                )
                for shape in shapes
            )
        return o.Expansion(key=key, value=value, latent_rows=not self.fused)

    def mapped(
        self,
        small: SmallGraph,
        source: o.Value,
        matrix: o.HeadMatrix,
        size: int,
        *,
        transposed: bool = False,
    ) -> o.Value:
        out = small.value(self.heads * size)
        small.ops.append(
            o.HeadLinear(
                source=source,
                out=out,
                weight=matrix.weight,
                heads=self.heads,
                first=matrix.first,
                rows=matrix.rows,
                transposed=transposed,
                expandable=True,
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
                frequencies=rope.frequencies(self.rotary, 100.0)[0],
                layout=o.RopeLayout.INTERLEAVED,
            )
        )
        return out

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((), 0), ((1, 31, 5), 0), ((33,), 4)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return FLOAT


CASES: list[Case] = [
    *(
        ExpandedCase(heads=heads, latent=latent, rotary=rotary, key=key, value=value, fused=fused)
        for heads, latent, rotary, key, value in [
            (1, 16, 2, 1, 1),
            (3, 36, 8, 22, 14),
            (2, 33, 6, 33, 33),
            (5, 64, 32, 17, 64),
        ]
        for fused in (False, True)
    ),
    *(
        ExpandedCase(latent=64, rotary=32, key=32, value=64, kv_type=kind, softcap=5.0)
        for kind in CPU_KV_TYPES
    ),
    *(
        ExpandedCase(latent=64, key=32, value=24, type=GgmlType.Q8_0, fused=fused, threads=3)
        for fused in (False, True)
    ),
    ExpandedCase(
        heads=2, latent=512, rotary=64, key=128, value=128, tokens=300, kv_type=KvType.F16
    ),
]
