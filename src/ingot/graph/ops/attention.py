"""Attention: rotary embedding (RoPE), the write to the KV cache, and attention over it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import ClassVar

from ingot.errors import GraphError
from ingot.graph.ops.neighbours import Neighbours
from ingot.graph.ops.record import (
    INPUT,
    KV_LAYER,
    MATRIX,
    OUTPUT,
    VECTOR,
    CacheUse,
    KvLayer,
    Op,
    Record,
    Value,
    Weight,
)
from ingot.graph.ops.rows import Norm, Normalization

__all__ = [
    "Attend",
    "ChoosePositions",
    "DistanceBias",
    "Expansion",
    "HeadLinear",
    "HeadMatrix",
    "PickHeads",
    "Rope",
    "RopeLayout",
    "Rotary",
    "SeenPart",
    "StoreKv",
    "Temper",
    "WriteKv",
]


class RopeLayout(StrEnum):
    """Which elements of a head are rotated together."""

    INTERLEAVED = "interleaved"  # 2i with 2i+1
    HALF_SPLIT = "half-split"  # i with i + rotary/2


class SeenPart(StrEnum):
    """Which positions of a sequence attention looks at."""

    ALL = "all"
    ENCODED = "encoded"  # those that an encoder wrote, whatever the position of the token
    DECODED = "decoded"  # those after them


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceBias(Record):
    """What is added to the scores of every head, by the distance from query to key.

    Head h adds weight[buckets[distance + reach], h]; farther keys count as those `reach` away.
    """

    weight: Weight = field(metadata=VECTOR)  # [buckets, heads]
    buckets: tuple[int, ...]  # of the distances from -reach to reach

    @property
    def reach(self) -> int:
        """The largest distance that differs from the one before."""
        return len(self.buckets) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMatrix(Record):
    """A matrix for each head: of the head's rows of `weight`, `rows` from `first` on."""

    weight: Weight = field(metadata=MATRIX)  # [heads, rows, columns], or [heads * rows, columns]
    first: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion(Record):
    """What makes the key and the value of each head of a latent.

    `latent_rows`: the rows of `key` are those of a latent's elements, not those of a key's.
    """

    key: HeadMatrix
    value: HeadMatrix  # its rows are those of a value's elements
    latent_rows: bool

    @property
    def key_size(self) -> int:
        """Elements of the key that it makes for a head."""
        return self.key.weight.shape[-1] if self.latent_rows else self.key.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary(Record):
    """The numbers of a rotary embedding."""

    frequencies: tuple[float, ...]  # radians per position, one for each pair of elements
    layout: RopeLayout
    magnitude: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope(Op):
    """Rotate the first 2*len(frequencies) elements of every head by position * frequency.

    Cosine and sine are multiplied by `magnitude`.
    """

    label: ClassVar[str] = "rope"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    head_size: int
    frequencies: tuple[float, ...]
    layout: RopeLayout
    magnitude: float = 1.0

    @property
    def rotary(self) -> Rotary:
        """The same without its values, as a part of other operations."""
        return Rotary(frequencies=self.frequencies, layout=self.layout, magnitude=self.magnitude)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How much of a head is rotated, and how."""
        return (_rotary_words(self.rotary),)

    def fits(self) -> bool:
        """Heads are whole, and no shorter than what is rotated of them."""
        rotated = 2 * len(self.frequencies)
        whole = not self.source.width % self.head_size
        return self.same_width() and rotated <= self.head_size and whole


def _rotary_words(rotary: Rotary | None) -> str:
    if rotary is None:
        return ""
    scaled = f" times {rotary.magnitude:g}" if rotary.magnitude != 1 else ""
    return f"rope of {len(rotary.frequencies)} pairs ({rotary.layout}){scaled}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKv(Op):
    """Store each token's key and value at its position in a layer of the cache.

    If the layer's values are `shared`, its keys are what comes as key, then what comes as value.
    """

    label: ClassVar[str] = "write kv"
    colour: ClassVar[str] = "#dff3dc"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.WRITTEN

    key: Value = field(metadata=INPUT)
    value: Value = field(metadata=INPUT)
    kv_layer: int = field(metadata=KV_LAYER)
    shared: bool = False

    def fits(self) -> bool:
        """Only a shared value may have another width than its key."""
        return self.shared or self.same_width()

    def check_cache(
        self, layers: Sequence[KvLayer], stored: set[int], encoded: Collection[int]
    ) -> None:
        """Each layer of the cache is written once, in its own width."""
        del encoded  # a decoder may write other positions of the same layer
        layer = _cache_layer(self, self.kv_layer, layers)
        if self.kv_layer in stored:
            raise GraphError(f"{self}: layer {self.kv_layer} is stored a second time")
        kept = layer.key_width, layer.value_width, layer.shared_value > 0
        if (self.key.width, self.value.width, self.shared) != kept:
            raise GraphError(
                f"{self}: layer {self.kv_layer} keeps keys of {layer.key_width} and values of "
                f"{layer.value_width} elements"
            )
        stored.add(self.kv_layer)

    def fuse(self, around: Neighbours) -> "StoreKv":
        """Takes the head norms and the RoPE of its key and of the query that attends to it.

        There is no such query if another graph attends to what this one stores.
        """
        attend = _first_reader(around, self.kv_layer)
        key = _Heads.of(around, self.key, self, self)
        around.take(key.norm, key.rope)
        if attend is None:
            return StoreKv(
                query=None,
                key=key.value,
                value=self.value,
                query_norm=None,
                key_norm=key.norm.normalization if key.norm else None,
                rope=key.rope.rotary if key.rope else None,
                norms_last=key.norm_last,
                kv_layer=self.kv_layer,
                layer=self.layer,
            )
        heads = _Heads.of(around, attend.query, attend, self)
        around.take(heads.norm, heads.rope)
        ropes = [op.rope.rotary if op.rope else None for op in (heads, key)]
        if ropes[0] != ropes[1]:
            raise GraphError(
                f"query and key of layer {self.kv_layer} have different rotary embeddings"
            )
        orders = {op.norm_last for op in (heads, key) if op.norm and op.rope}
        if len(orders) > 1:
            raise GraphError(
                f"query and key of layer {self.kv_layer} are normed before and after RoPE"
            )
        return StoreKv(
            query=heads.value,
            key=key.value,
            value=self.value,
            query_norm=heads.norm.normalization if heads.norm else None,
            key_norm=key.norm.normalization if key.norm else None,
            rope=ropes[0],
            norms_last=orders == {True},
            kv_layer=self.kv_layer,
            layer=self.layer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKv(Op):
    """Norm and rotate the heads of query and key in place, then store key and value.

    Norms come first, or last if `norms_last`.
    """

    label: ClassVar[str] = "store kv"
    colour: ClassVar[str] = WriteKv.colour
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.WRITTEN

    query: Value | None = field(metadata=INPUT)  # None: another graph attends to the layer
    key: Value = field(metadata=INPUT)
    value: Value = field(metadata=INPUT)
    query_norm: Normalization | None
    key_norm: Normalization | None
    rope: Rotary | None
    norms_last: bool
    kv_layer: int = field(metadata=KV_LAYER)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What happens to the heads."""
        norms = "head norms" if self.query_norm or self.key_norm else ""
        rope = _rotary_words(self.rope)
        return (rope, norms) if self.norms_last else (norms, rope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend(Op):
    """Attention of every query head over a layer of the cache.

    score = scale * q.k, then cap * tanh(score / cap) if there is a cap; a token sees
    positions p with position - window < p <= position (window 0: all of them), or, if it is
    not causal, its whole sequence, which then must run in one batch, or with a window those at most
    window // 2 away. If it is `chunked`, windows
    lie side by side, and a token sees those positions of its own that are not later. Query head h
    reads key head h // (heads / kv_heads). With sinks, softmax of head h also counts one more
    score, sinks[h], that has no value.

    Added to scores, after scale and cap: a `bias` by distance, and -slopes[h] * |distance|. `seen`:
    of a sequence that begins with encoded positions, only those, all of them; or only the others.

    Over latents there are two forms. In the absorbed one, `HeadLinear` maps queries to the space of
    latents, and mixed latents to values. With an `expansion`, a backend may compute tokens in the
    expanded one: both maps leave them out (`HeadLinear.expandable`), and the queries meet keys and
    values that are made of the latents for each head. This is less work for many tokens that see
    the same latents.

    With `chosen` positions (`ChoosePositions`), a token sees those alone. If they are all that it
    would see, the result is the same to the last bit.
    """

    label: ClassVar[str] = "attend"
    colour: ClassVar[str] = "#ffe3c7"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.READ

    query: Value = field(metadata=INPUT)
    chosen: Value | None = field(default=None, metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    kv_layer: int = field(metadata=KV_LAYER)
    heads: int
    kv_heads: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Weight | None = field(default=None, metadata=VECTOR)
    causal: bool = True
    chunked: bool = False
    seen: SeenPart = SeenPart.ALL
    bias: DistanceBias | None = None
    slopes: tuple[float, ...] = ()  # one for each head
    expansion: Expansion | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its heads and what differs from plain causal attention."""
        return (
            f"{self.heads} heads over {self.kv_heads}",
            "" if self.causal else "both ways",
            f"{'chunks of' if self.chunked else 'window'} {self.window}" if self.window else "",
            f"soft cap {self.softcap:g}" if self.softcap else "",
            "sinks" if self.sinks else "",
            f"over {self.seen} positions" if self.seen is not SeenPart.ALL else "",
            f"bias of distances up to {self.bias.reach}" if self.bias else "",
            "ALiBi" if self.slopes else "",
            f"{self.chosen.width} chosen positions" if self.chosen else "",
        )

    @property
    def sees_later_tokens(self) -> bool:
        """If it is not causal."""
        return not self.causal

    def fits(self) -> bool:
        """Groups of heads are whole; only a causal attention has chunks, or sees a part."""
        grouped = self.kv_heads > 0 and self.heads % self.kv_heads == 0
        sinks_fit = self.sinks is None or self.sinks.shape == (self.heads,)
        seen = not self.chunked or (self.causal and self.window > 0)
        part = self.seen is SeenPart.ALL or (self.causal and not self.window)
        slopes = len(self.slopes) in (0, self.heads)
        added = self._bias_fits() and self._expansion_fits()
        whole = self.causal and not self.window and self.seen is SeenPart.ALL
        chosen = self.chosen is None or (whole and self.expansion is None)
        return grouped and sinks_fit and seen and part and slopes and added and chosen

    def _bias_fits(self) -> bool:
        if self.bias is None:
            return True
        buckets, heads = self.bias.weight.shape
        known = all(bucket in range(buckets) for bucket in self.bias.buckets)
        return heads == self.heads and len(self.bias.buckets) % 2 == 1 and known

    def _expansion_fits(self) -> bool:
        """Matrices of these heads and latents; a query and a value fit where the mapped ones are.

        Only a plain attention is expanded.
        """
        if self.expansion is None:
            return True
        latent, size = self.out.width // self.heads, self.query.width // self.heads
        key, value = self.expansion.key, self.expansion.value
        plain = self.causal and not self.window and self.kv_heads == 1 and self.sinks is None
        of_head = [divmod(prod(each.weight.shape[:-1]), self.heads) for each in (key, value)]
        inside = all(
            not rest and 0 <= each.first < each.first + each.rows <= rows
            for each, (rows, rest) in zip((key, value), of_head, strict=True)
        )
        made = value.weight.shape[-1] == latent and value.rows <= latent
        keys = key.rows if self.expansion.latent_rows else key.weight.shape[-1]
        short = keys == latent and self.expansion.key_size <= latent <= size
        return plain and self.seen is SeenPart.ALL and inside and made and short

    def check_cache(
        self, layers: Sequence[KvLayer], stored: set[int], encoded: Collection[int]
    ) -> None:
        """The layer was written, with these heads."""
        layer = _cache_layer(self, self.kv_layer, layers)
        if self.kv_layer not in (encoded if self.seen is SeenPart.ENCODED else stored):
            raise GraphError(f"{self}: layer {self.kv_layer} is read before it is stored")
        value_size = layer.value_width // layer.heads
        kept = layer.heads, self.heads * layer.head_size, self.heads * value_size, layer.window
        window = self.window if self.causal else 0  # what runs in one batch stays
        if (self.kv_heads, self.query.width, self.out.width, window) != kept:
            raise GraphError(
                f"{self}: {self.heads} heads over {self.kv_heads}, width {self.query.width} to "
                f"{self.out.width}, window {self.window} do not fit layer {self.kv_layer}, which "
                f"keeps {layer.heads} heads of {layer.head_size}, window {layer.window}"
            )

    def fuse(self, around: Neighbours) -> "Attend":
        """`StoreKv` norms and rotates the query of the first that reads its layer in place."""
        if self.seen is SeenPart.ENCODED or _first_reader(around, self.kv_layer) != self:
            return self
        return replace(self, query=_Heads.of(around, self.query, self, self).value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoosePositions(Op):
    """The positions that a token attends to: those whose keys score highest, in ascending order.

        score of p = sum over heads of head_weights[h] * max(0, q[h] . k[p])

    of positions p that are not later than the token. Of equal scores that of the earlier position
    counts as higher. There are as many as `out` is wide; a token that sees no more takes them all,
    and -1 fills its row.
    """

    label: ClassVar[str] = "choose positions"
    colour: ClassVar[str] = Attend.colour
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.READ

    query: Value = field(metadata=INPUT)
    head_weights: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    kv_layer: int = field(metadata=KV_LAYER)
    heads: int

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many, and by how many heads."""
        return (f"{self.out.width} by {self.heads} heads",)

    def fits(self) -> bool:
        """Heads are whole, and each has a weight."""
        return self.heads == self.head_weights.width and not self.query.width % self.heads

    def check_cache(
        self, layers: Sequence[KvLayer], stored: set[int], encoded: Collection[int]
    ) -> None:
        """The layer was written, and keeps one key of this size."""
        del encoded
        layer = _cache_layer(self, self.kv_layer, layers)
        if self.kv_layer not in stored:
            raise GraphError(f"{self}: layer {self.kv_layer} is read before it is stored")
        if (layer.heads, self.heads * layer.head_size, layer.window) != (1, self.query.width, 0):
            raise GraphError(
                f"{self}: {self.heads} heads, width {self.query.width} do not fit layer "
                f"{self.kv_layer}, which keeps {layer.heads} heads of {layer.head_size}, window "
                f"{layer.window}"
            )

    def fuse(self, around: Neighbours) -> "ChoosePositions":
        """`StoreKv` norms and rotates its query in place."""
        if _first_reader(around, self.kv_layer) != self:
            return self
        return replace(self, query=_Heads.of(around, self.query, self, self).value)


def _first_reader(around: Neighbours, kv_layer: int) -> Attend | ChoosePositions | None:
    """The first that looks for queries' keys in a layer of the cache."""
    kinds = Attend | ChoosePositions
    return next(
        (op for op in around.ops if isinstance(op, kinds) and op.kv_layer == kv_layer), None
    )


@dataclass(frozen=True, slots=True)
class _Heads:
    """What an attention gets of a linear map: the map's value, and the norm and RoPE of heads."""

    value: Value
    norm: Norm | None
    rope: Rope | None
    norm_last: bool  # after RoPE

    @classmethod
    def of(cls, around: Neighbours, value: Value, reader: Op, at: Op) -> "_Heads":
        """Those of a value that `reader` reads; they are changed in place where `at` is."""
        rope: Rope | None = None
        norm: Norm | None = None
        norm_last = False
        chain = [value]
        before = around.writer(value)
        while True:
            if isinstance(before, Rope) and rope is None:
                rope, norm_last = before, norm is not None
            elif isinstance(before, Norm) and norm is None:
                norm = before
            else:
                break
            chain.append(before.source)
            before = around.writer(before.source)
        # What is changed in place may be read before, but not as it is in between, nor later.
        later = {id(op) for op in around.following(at)}
        for link, changer in zip(chain, [reader, *map(around.writer, chain)], strict=False):
            others = [op for op in around.readers(link) if op is not changer]
            if link == chain[-1]:
                others = [op for op in others if id(op) in later]
            if others and len(chain) > 1:
                raise GraphError(
                    f"{link.name} is read by others too, but heads are changed in place"
                )
        return cls(chain[-1], norm, rope, norm_last)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLinear(Op):
    """A linear map of the first elements of every head, each head by its own matrix.

    What a head has beyond the matrix' columns comes first, unchanged, then what the matrix makes:

        out[h] = source[h][columns:], weight[h] @ source[h][:columns]

    Of a head's rows of `weight`, `rows` from `first` on are its matrix; `transposed`: they are its
    columns. `expandable`: of tokens whose attention is expanded, elements that the matrix would
    take come unmapped instead, as many as there is room for.
    """

    label: ClassVar[str] = "head linear"
    colour: ClassVar[str] = "#dbe9ff"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    weight: Weight = field(metadata=MATRIX)  # [heads, rows, columns], or [heads * rows, columns]
    heads: int
    first: int
    rows: int
    transposed: bool = False
    expandable: bool = False

    @property
    def inputs_of_head(self) -> int:
        """Elements of a head that its matrix takes."""
        return self.rows if self.transposed else self.weight.shape[-1]

    @property
    def results_of_head(self) -> int:
        """Elements that it makes of them."""
        return self.weight.shape[-1] if self.transposed else self.rows

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many matrices there are, and of which size."""
        return (f"{self.heads} heads, {self.inputs_of_head} to {self.results_of_head}",)

    def fits(self) -> bool:
        """One matrix for each head, and heads that hold its input."""
        of_head, rest = divmod(prod(self.weight.shape[:-1]), self.heads)
        if rest or not 0 <= self.first < self.first + self.rows <= of_head:
            return False
        size, rest = divmod(self.source.width, self.heads)
        kept = size - self.inputs_of_head
        return (
            not rest and kept >= 0 and self.out.width == self.heads * (kept + self.results_of_head)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PickHeads(Op):
    """out[h] = the elements of source[h] from `first` on, as many as out has of a head.

    For matrices whose rows lie head by head, with several things of a head in a row.
    """

    label: ClassVar[str] = "pick heads"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    heads: int
    first: int

    @property
    def remarks(self) -> tuple[str, ...]:
        """Which elements."""
        size = self.out.width // self.heads
        return (f"{self.first} to {self.first + size} of each of {self.heads}",)

    def fits(self) -> bool:
        """Heads are whole, and have these elements."""
        if self.heads < 1 or self.source.width % self.heads or self.out.width % self.heads:
            return False
        last = self.first + self.out.width // self.heads
        return 0 <= self.first < last <= self.source.width // self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper(Op):
    """out = source * (1 + scale * log(1 + floor((position + offset) / length))).

    Queries far from the beginning get larger, so that many keys do not blur them.
    """

    label: ClassVar[str] = "temper"
    needs_all_tokens: ClassVar[bool] = True

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    scale: float
    length: int
    offset: int

    @property
    def remarks(self) -> tuple[str, ...]:
        """The numbers of its formula."""
        return (f"1 + {self.scale:g} log(1 + position / {self.length})",)

    def fits(self) -> bool:
        """There are positions."""
        return self.same_width() and self.length > 0 and self.offset >= 0


def _cache_layer(op: Op, number: int, layers: Sequence[KvLayer]) -> KvLayer:
    if not 0 <= number < len(layers):
        raise GraphError(f"{op}: there is no cache for layer {number}")
    return layers[number]
