"""Cases of attention: heads, sizes, caches, windows, rotary embeddings, long contexts.

One row of the embedding holds a token's query, key and value.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ingot import _native
from ingot.graph import KvLayer, rope
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from ops.case import Case, Gpu, Way
from ops.small_graph import SmallGraph

CPU_KV_TYPES = [KvType[name] for name in _native.CODES["KvType"].__members__]
# DESIGN allows a softmax 1e-3. Keys and values are rounded to the cache's type alike on
# both sides, so that its bits do not count.
FLOAT = 1e-4
# Where the cache holds integers: queries and shares are rounded to 16 bits.
WORDS = 1e-3
HALVES = 4e-3  # on a GPU: queries and shares are rounded to 11 bits


@dataclass(frozen=True, kw_only=True)
class AttentionCase(Case):
    """An attention and how much of it to run. Scores are large enough that the softmax is neither
    flat nor decided by one position."""

    family: ClassVar[str] = "attention"

    heads: int = 2
    kv_heads: int = 1
    size: int = 16
    tokens: int = 40
    window: int = 0
    chunked: bool = False
    softcap: float = 0.0
    sinks: bool = False
    causal: bool = True
    scale: float | None = None
    bias: int = 0  # the longest distance with a bias of its own
    slopes: tuple[float, ...] = ()
    norms: bool = False
    norms_last: bool = False
    weighted: bool = True  # whether norms have weights
    frequencies: tuple[float, ...] = ()
    magnitude: float = 1.0
    layout: o.RopeLayout = o.RopeLayout.HALF_SPLIT
    chunks: tuple[int, ...] = ()
    generated: int = 0
    uneven: bool = False  # large elements, and keys and values that are zeros or tiny

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        query, key = self.heads * self.size, self.kv_heads * self.size
        rows = small.random(self.tokens, query + 2 * key)
        if self.uneven:
            rows[:, ::29] *= 2
            rows[2::5, query:] = 0
            rows[3::5, query:] *= 1e-30
        x = small.embed(rows)
        q = small.pick(x, 0, query)
        k = small.pick(x, query, query + key)
        v = small.pick(x, query + key, query + 2 * key)
        if self.norms and not self.norms_last:
            q, k = (self.norm(small, value) for value in (q, k))
        if self.frequencies:
            q, k = (self.rope(small, value) for value in (q, k))
        if self.norms and self.norms_last:
            q, k = (self.norm(small, value) for value in (q, k))
        kept = self.window if self.causal else 0
        small.kv_layers.append(KvLayer(self.kv_heads, self.size, kept))
        small.ops.append(o.WriteKv(key=k, value=v, kv_layer=0))
        out = small.value(query)
        small.ops.append(
            o.Attend(
                query=q,
                out=out,
                kv_layer=0,
                heads=self.heads,
                kv_heads=self.kv_heads,
                scale=2 * self.size**-0.5 if self.scale is None else self.scale,
                window=self.window,
                chunked=self.chunked,
                softcap=self.softcap,
                sinks=small.weight(small.random(self.heads, scale=4)) if self.sinks else None,
                causal=self.causal,
                bias=self.distances(small) if self.bias else None,
                slopes=self.slopes,
            )
        )
        return small, small.select(out)

    def distances(self, small: SmallGraph) -> o.DistanceBias:
        """Seven buckets, in no order."""
        buckets = tuple(distance * 5 % 7 for distance in range(2 * self.bias + 1))
        return o.DistanceBias(
            weight=small.weight(small.random(7, self.heads, scale=2)), buckets=buckets
        )

    def norm(self, small: SmallGraph, source: o.Value) -> o.Value:
        out = small.value(source.width)
        weights = small.weight(small.random(self.size, offset=1, scale=0.2))
        small.ops.append(
            o.Norm(
                source=source,
                out=out,
                weight=weights if self.weighted else None,
                kind=o.NormKind.RMS,
                epsilon=1e-6,
                run=None if self.weighted else self.size,
            )
        )
        return out

    def rope(self, small: SmallGraph, source: o.Value) -> o.Value:
        out = small.value(source.width)
        small.ops.append(
            o.Rope(
                source=source,
                out=out,
                head_size=self.size,
                frequencies=self.frequencies,
                layout=self.layout,
                magnitude=self.magnitude,
            )
        )
        return out

    @property
    def ways(self) -> tuple[Way, ...]:
        return ((self.chunks, self.generated),)

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002
        return WORDS if self.kv_type.block_size > 1 else FLOAT

    @property
    def gpu_bound(self) -> float:
        # A key or value that was rounded the other way is a step of its type away; of fp8, and for
        # a token that sees few others, that is much of one number.
        coarse = {KvType.BF16: 4, KvType.Q8_0: 4, KvType.FP8: 16}.get(self.kv_type, 1)
        return HALVES * coarse * (10 if self.kv_type is KvType.FP8 else 4)


@dataclass(frozen=True, kw_only=True)
class LatentCase(AttentionCase):
    """Attention over latents: a layer keeps one key for all heads, with its value inside."""

    rotary: int = 8

    def bound(self, isa: str, way: Way) -> float:  # noqa: ARG002 (numbers of latents are decoded)
        return FLOAT

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        size = self.rotary + self.size
        query = self.heads * size
        x = small.embed(small.random(self.tokens, query + size))
        q = small.pick(x, 0, query)
        k = small.pick(x, query, query + self.rotary)
        v = small.pick(x, query + self.rotary, query + size)
        if self.frequencies:
            q, k = (self.turned(small, value, n) for value, n in ((q, size), (k, self.rotary)))
        small.kv_layers.append(KvLayer(1, size, 0, shared_value=self.size))
        small.ops.append(o.WriteKv(key=k, value=v, kv_layer=0, shared=True))
        out = small.value(self.heads * self.size)
        scale = 2 * size**-0.5
        small.ops.append(
            o.Attend(
                query=q,
                out=out,
                kv_layer=0,
                heads=self.heads,
                kv_heads=1,
                scale=scale,
                softcap=self.softcap,
            )
        )
        return small, small.select(out)

    def turned(self, small: SmallGraph, source: o.Value, size: int) -> o.Value:
        out = small.value(source.width)
        small.ops.append(
            o.Rope(
                source=source,
                out=out,
                head_size=size,
                frequencies=self.frequencies,
                layout=self.layout,
            )
        )
        return out


@dataclass(frozen=True, kw_only=True)
class SharedKeysCase(AttentionCase):
    """A second layer that reads the keys and values of the first, with queries of its own."""

    frequencies: tuple[float, ...] = rope.frequencies(8, 10000.0)[0]

    def build(self) -> tuple[SmallGraph, o.Value]:
        small = SmallGraph(self.seed)
        query, key = self.heads * self.size, self.kv_heads * self.size
        x = small.embed(small.random(self.tokens, query + 2 * key))
        k, v = (small.pick(x, query + at, query + at + key) for at in (0, key))
        first = self.rope(small, small.pick(x, 0, query))
        k = self.rope(small, k)
        small.kv_layers.append(KvLayer(self.kv_heads, self.size, self.window))
        small.ops.append(o.WriteKv(key=k, value=v, kv_layer=0))
        mixed = self.attend(small, first)
        # Its queries are made of what the first layer gave, and rotated.
        matrix = small.random(query, query, scale=query**-0.5)
        second = self.rope(small, small.linear(mixed, matrix))
        return small, small.select(self.attend(small, second))

    def attend(self, small: SmallGraph, query: o.Value) -> o.Value:
        out = small.value(query.width)
        small.ops.append(
            o.Attend(
                query=query,
                out=out,
                kv_layer=0,
                heads=self.heads,
                kv_heads=self.kv_heads,
                scale=2 * self.size**-0.5,
                window=self.window,
            )
        )
        return out


HEADS = [(8, 8), (2, 1), (6, 2), (4, 1), (5, 1), (12, 2), (7, 1), (8, 1), (32, 1)]
HEADS += [(33, 1), (71, 1), (80, 2)]  # more for a key than rows in a tile
# Sizes, and rows that have kernels of their own, that read the cache in place, and more.
ROWS = [(64, 1), (96, 2), (32, 3), (96, 4), (32, 5), (32, 6), (64, 7), (32, 8), (64, 13), (32, 35)]

ROPES = {
    "plain": rope.frequencies(16, 10000.0),
    "partial": rope.frequencies(6, 10000.0),
    "linear": rope.frequencies(16, 10000.0, linear_factor=4.0),
    "factors": rope.frequencies(16, 500.0, factors=[1, 1, 1.5, 2, 4, 8, 8, 8]),
    "yarn": rope.frequencies(16, 10000.0, yarn=rope.Yarn(factor=4.0, original_context=32)),
}

BASE = AttentionCase(size=32, heads=4, kv_heads=2, tokens=40, kv_type=KvType.F16, generated=2)
ONE_HEAD = replace(BASE, heads=2, kv_heads=1, size=16)
BOTH_WAYS = replace(ONE_HEAD, causal=False, generated=0)
ON_GPU = [
    replace(BASE, kv_type=KvType.F32, chunks=(7,), size=16, tokens=20),
    replace(BASE, kv_type=KvType.BF16, size=16, tokens=20, kv_heads=4),
    replace(ONE_HEAD, kv_type=KvType.Q8_0, size=32, tokens=20),
    replace(ONE_HEAD, kv_type=KvType.FP8, size=20, tokens=20, chunks=(7,)),
    replace(BASE, size=20, heads=3, kv_heads=1, tokens=20),
    replace(ONE_HEAD, sinks=True, window=7, softcap=3.0, generated=3),
    replace(ONE_HEAD, tokens=131, chunks=(70,), sinks=True),
    replace(ONE_HEAD, tokens=30, window=8, chunked=True, chunks=(13,), generated=3),
    replace(ONE_HEAD, tokens=20, chunks=(7,), bias=5, slopes=(0.3, 0.1)),
    replace(BOTH_WAYS, tokens=33, sinks=True, softcap=3.0),
    replace(BOTH_WAYS, tokens=70, window=9),
    replace(BOTH_WAYS, tokens=20, bias=5, slopes=(0.3, 0.1)),
    *(
        replace(
            BASE,
            size=16,
            tokens=12,
            frequencies=ROPES["partial"][0],
            layout=layout,
            norms=True,
            scale=16**-0.5,
        )
        for layout in o.RopeLayout
    ),
    replace(
        BASE,
        size=16,
        tokens=12,
        frequencies=ROPES["partial"][0],
        norms=True,
        norms_last=True,
        scale=16**-0.5,
    ),
    replace(BASE, size=16, tokens=12, norms=True, weighted=False, scale=16**-0.5),
    replace(ONE_HEAD, window=8, chunked=True, chunks=(17,), generated=5),
]
ON_DEVICE = [
    replace(BASE, kv_type=KvType.BF16),
    replace(BASE, kv_type=KvType.Q8_0, size=64),
    replace(BASE, kv_type=KvType.FP8, size=64, tokens=131, chunks=(70,), sinks=True),
    replace(BASE, size=80, heads=5, kv_heads=5, tokens=20),
    replace(BASE, heads=8, kv_heads=1, softcap=5.0),
    replace(BASE, window=33, tokens=80, chunks=(50,), generated=3),
    *(
        replace(BASE, tokens=tokens, window=chunk, chunked=True, chunks=(17,), generated=5)
        for tokens, chunk in [(100, 32), (100, 33), (70, 64), (1100, 600)]
    ),
    replace(BASE, tokens=300, chunks=(50, 70), bias=40, slopes=(0.3, 0.1, 0.0, 0.2), generated=9),
    *(
        replace(BASE, causal=False, generated=0, tokens=tokens, window=window)
        for tokens in (1, 200, 600)
        for window in (0, 7, 150)
    ),
    replace(BASE, tokens=300, chunks=(70, 78), sinks=True, generated=20),
    *(
        replace(
            BASE,
            size=16,
            tokens=12,
            frequencies=frequencies,
            magnitude=magnitude,
            layout=layout,
            norms=True,
            scale=16**-0.5,
        )
        for frequencies, magnitude in ROPES.values()
        for layout in o.RopeLayout
    ),
]

CASES = [
    *(AttentionCase(heads=heads, kv_heads=kv, generated=5) for heads, kv in HEADS),
    *(
        AttentionCase(size=size, heads=3, kv_heads=1, tokens=70, generated=3)
        for size in (1, 3, 17, 32, 33, 64, 80, 100, 128, 256)
    ),
    *(
        AttentionCase(size=size, heads=4, kv_heads=2, tokens=75, generated=4, kv_type=kv_type)
        for kv_type in CPU_KV_TYPES
        for size in (32, 64, 96, 128, 256)
    ),
    *(  # of every number of rows that have a kernel of their own, and more
        AttentionCase(
            size=size,
            heads=heads,
            tokens=75,
            chunks=(33,),
            generated=4,
            uneven=True,
            kv_type=kv_type,
        )
        for kv_type in CPU_KV_TYPES
        for size, heads in (
            (64, 1),
            (32, 3),
            (96, 4),
            (32, 5),
            (64, 7),
            (32, 8),
            (64, 13),
            (32, 35),
        )
    ),
    *(  # parts and windows that end inside blocks
        AttentionCase(
            size=32,
            tokens=600,
            window=window,
            chunks=(270, 7),
            generated=3,
            sinks=True,
            threads=2,
            kv_type=kv_type,
        )
        for kv_type in CPU_KV_TYPES
        for window in (0, 50)
    ),
    *(  # short windows, whole blocks, and wider than the text; blocks are given back on the way
        AttentionCase(window=window, tokens=150, chunks=(1, 40, 70), generated=20, heads=3)
        for window in (1, 2, 31, 32, 33, 50, 64, 100, 1000)
    ),
    AttentionCase(softcap=5.0, generated=4),
    AttentionCase(sinks=True, heads=6, kv_heads=2, generated=4),
    AttentionCase(sinks=True, window=7, softcap=3.0, generated=9),
    AttentionCase(scale=0.01, generated=4),
    AttentionCase(scale=5.0, generated=4),
    AttentionCase(tokens=1),
    AttentionCase(tokens=1, generated=1),
    AttentionCase(tokens=33, chunks=(1, 1, 29, 1), generated=1),
    *(  # every token sees its whole sequence
        AttentionCase(
            causal=False,
            tokens=tokens,
            heads=6,
            kv_heads=2,
            sinks=True,
            threads=2,
        )
        for tokens in (1, 2, 31, 32, 33, 65, 130, 600)
    ),
    *(
        AttentionCase(causal=False, tokens=tokens, window=window, heads=3)
        for tokens in (1, 33, 130)
        for window in (1, 2, 9, 64, 100)
    ),
    *(  # biases of distances, near and far, in prompts and past the parts of a generation
        AttentionCase(
            heads=6,
            kv_heads=2,
            tokens=tokens,
            causal=causal,
            bias=bias,
            slopes=(0.5, 0.25, 0.1, 0.01, 0.0, 0.3) if slopes else (),
            softcap=2.0 if slopes else 0.0,
            chunks=(33,) if causal else (),
            generated=9 if causal else 0,
            threads=2,
        )
        for tokens in (1, 40, 100, 600)
        for causal in (True, False)
        for bias, slopes in ((1, False), (20, False), (31, True), (64, False), (0, True))
        if tokens > 9 or not causal
    ),
    *(
        AttentionCase(causal=False, size=32, softcap=3.0, kv_type=kv_type)
        for kv_type in CPU_KV_TYPES
    ),
    *(  # a generation looks at its past in parts of 512 positions
        AttentionCase(
            tokens=tokens,
            window=window,
            chunks=(500,),
            generated=3,
            sinks=True,
            kv_type=KvType.F16,
            threads=2,
        )
        for tokens in (512, 513, 544, 1025, 1600)
        for window in (0, 600)
    ),
    *(
        AttentionCase(
            heads=4,
            kv_heads=2,
            tokens=100,
            frequencies=frequencies,
            magnitude=magnitude,
            layout=layout,
            norms=norms,
            chunks=(33,),
            generated=5,
        )
        for frequencies, magnitude in ROPES.values()
        for layout in o.RopeLayout
        for norms in (False, True)
    ),
    *(replace(case, gpu=Gpu.INTERPRETER) for case in ON_GPU),
    *(replace(case, gpu=Gpu.DEVICE) for case in ON_DEVICE),
    *(
        AttentionCase(
            tokens=tokens,
            window=chunk,
            chunked=True,
            chunks=(17,),
            generated=5,
        )
        for tokens, chunk in [(40, 8), (100, 32), (100, 33), (70, 64), (1100, 600)]
    ),
    *(
        AttentionCase(
            heads=4,
            kv_heads=2,
            frequencies=ROPES["plain"][0],
            layout=layout,
            norms=True,
            norms_last=True,
            generated=5,
        )
        for layout in o.RopeLayout
    ),
    *(
        LatentCase(
            heads=heads,
            size=size,
            rotary=rotary,
            tokens=tokens,
            frequencies=ROPES["partial"][0],
            layout=o.RopeLayout.INTERLEAVED,
            chunks=(30,),
            generated=4,
        )
        for heads, size, rotary, tokens in [
            (1, 16, 8, 40),
            (5, 21, 9, 40),
            (40, 36, 6, 70),
            (3, 512, 64, 600),
        ]
    ),
    *(
        LatentCase(heads=3, size=64, rotary=32, tokens=70, chunks=(33,), generated=4, kv_type=kind)
        for kind in CPU_KV_TYPES
    ),
    *(
        LatentCase(
            heads=heads,
            size=size,
            rotary=rotary,
            tokens=tokens,
            frequencies=ROPES["partial"][0] if turned else (),
            layout=o.RopeLayout.INTERLEAVED if heads == 3 else o.RopeLayout.HALF_SPLIT,
            chunks=(tokens // 2,),
            generated=2,
            kv_type=kind,
            softcap=5.0 if kind is KvType.F16 else 0.0,
            gpu=gpu,
        )
        for heads, size, rotary, tokens, turned, kind, gpu in [
            (3, 21, 9, 12, True, KvType.F32, Gpu.INTERPRETER),
            (1, 16, 8, 131, True, KvType.F16, Gpu.INTERPRETER),  # two parts
            (2, 32, 32, 10, False, KvType.Q8_0, Gpu.INTERPRETER),
            (2, 20, 6, 10, True, KvType.FP8, Gpu.INTERPRETER),
            (16, 512, 64, 300, True, KvType.F16, Gpu.DEVICE),
            (16, 512, 64, 40, True, KvType.BF16, Gpu.DEVICE),
        ]
    ),
    *(SharedKeysCase(tokens=40, window=window, generated=5) for window in (0, 9)),
    SharedKeysCase(tokens=10, generated=2, kv_type=KvType.F16, gpu=Gpu.INTERPRETER),
]
