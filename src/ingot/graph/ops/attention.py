"""Attention: rotary embedding (RoPE), the write to the KV cache, and attention over it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from ingot.errors import GraphError
from ingot.graph.ops.neighbours import Neighbours
from ingot.graph.ops.record import (
    INPUT,
    KV_LAYER,
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

__all__ = ["Attend", "Rope", "RopeLayout", "Rotary", "StoreKv", "WriteKv"]


class RopeLayout(StrEnum):
    """Which elements of a head are rotated together."""

    INTERLEAVED = "interleaved"  # 2i with 2i+1
    HALF_SPLIT = "half-split"  # i with i + rotary/2


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

    def fuse(self, around: Neighbours) -> None:
        """Only the heads of an attention are rotated: `StoreKv`."""


def _rotary_words(rotary: Rotary | None) -> str:
    if rotary is None:
        return ""
    scaled = f" times {rotary.magnitude:g}" if rotary.magnitude != 1 else ""
    return f"rope of {len(rotary.frequencies)} pairs ({rotary.layout}){scaled}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKv(Op):
    """Store each token's key and value at its position in a layer of the cache."""

    label: ClassVar[str] = "write kv"
    colour: ClassVar[str] = "#dff3dc"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.WRITTEN

    key: Value = field(metadata=INPUT)
    value: Value = field(metadata=INPUT)
    kv_layer: int = field(metadata=KV_LAYER)

    def check_cache(self, layers: Sequence[KvLayer], stored: set[int]) -> None:
        """Each layer of the cache is written once, in its own width."""
        layer = _cache_layer(self, self.kv_layer, layers)
        if self.kv_layer in stored:
            raise GraphError(f"{self}: layer {self.kv_layer} is stored a second time")
        if self.key.width != layer.width or self.value.width != layer.width:
            raise GraphError(f"{self}: layer {self.kv_layer} keeps {layer.width} elements")
        stored.add(self.kv_layer)

    def fuse(self, around: Neighbours) -> "StoreKv":
        """Takes the head norms and the RoPE of its key and of the query that attends to it."""
        query = next(
            (op.query for op in around.ops if isinstance(op, Attend) and self._is_for(op)), None
        )
        if query is None:
            raise GraphError("a layer of the cache is stored or read, but not both")
        heads, key = _Heads.of(around, query), _Heads.of(around, self.key)
        around.take(heads.norm, heads.rope, key.norm, key.rope)
        ropes = [op.rope.rotary if op.rope else None for op in (heads, key)]
        if ropes[0] != ropes[1]:
            raise GraphError(
                f"query and key of layer {self.kv_layer} have different rotary embeddings"
            )
        return StoreKv(
            query=heads.value,
            key=key.value,
            value=self.value,
            query_norm=heads.norm.normalization if heads.norm else None,
            key_norm=key.norm.normalization if key.norm else None,
            rope=ropes[0],
            kv_layer=self.kv_layer,
            layer=self.layer,
        )

    def _is_for(self, attend: "Attend") -> bool:
        return attend.kv_layer == self.kv_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKv(Op):
    """Norm and rotate the heads of query and key in place, then store key and value."""

    label: ClassVar[str] = "store kv"
    colour: ClassVar[str] = WriteKv.colour
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.WRITTEN

    query: Value = field(metadata=INPUT)
    key: Value = field(metadata=INPUT)
    value: Value = field(metadata=INPUT)
    query_norm: Normalization | None
    key_norm: Normalization | None
    rope: Rotary | None
    kv_layer: int = field(metadata=KV_LAYER)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What happens to the heads."""
        return "head norms" if self.query_norm or self.key_norm else "", _rotary_words(self.rope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend(Op):
    """Attention of every query head over a layer of the cache.

    score = scale * q.k, then cap * tanh(score / cap) if there is a cap; a token sees
    positions p with position - window < p <= position (window 0: all of them), or, if it is
    not causal, its whole sequence, which then must run in one batch. Query head h reads key
    head h // (heads / kv_heads). With sinks, softmax of head h also counts one more score,
    sinks[h], that has no value.
    """

    label: ClassVar[str] = "attend"
    colour: ClassVar[str] = "#ffe3c7"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.READ

    query: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    kv_layer: int = field(metadata=KV_LAYER)
    heads: int
    kv_heads: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Weight | None = field(default=None, metadata=VECTOR)
    causal: bool = True

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its heads and what differs from plain causal attention."""
        return (
            f"{self.heads} heads over {self.kv_heads}",
            "" if self.causal else "both ways",
            f"window {self.window}" if self.window else "",
            f"soft cap {self.softcap:g}" if self.softcap else "",
            "sinks" if self.sinks else "",
        )

    @property
    def sees_later_tokens(self) -> bool:
        """If it is not causal."""
        return not self.causal

    def fits(self) -> bool:
        """Groups of heads are whole; only a causal attention has a window."""
        grouped = self.kv_heads > 0 and self.heads % self.kv_heads == 0
        sinks_fit = self.sinks is None or self.sinks.shape == (self.heads,)
        seen = self.causal or not self.window
        return grouped and sinks_fit and seen and self.same_width()

    def check_cache(self, layers: Sequence[KvLayer], stored: set[int]) -> None:
        """The layer was written, with these heads."""
        layer = _cache_layer(self, self.kv_layer, layers)
        if self.kv_layer not in stored:
            raise GraphError(f"{self}: layer {self.kv_layer} is read before it is stored")
        kept = layer.heads, self.heads * layer.head_size, layer.window
        if (self.kv_heads, self.query.width, self.window) != kept:
            raise GraphError(
                f"{self}: {self.heads} heads over {self.kv_heads}, width {self.query.width}, "
                f"window {self.window} do not fit layer {self.kv_layer}, which keeps "
                f"{layer.heads} heads of {layer.head_size}, window {layer.window}"
            )

    def fuse(self, around: Neighbours) -> "Attend":
        """`StoreKv` norms and rotates its query in place."""
        return replace(self, query=_Heads.of(around, self.query).value)


@dataclass(frozen=True, slots=True)
class _Heads:
    """What an attention gets of a linear map: the map's value, and the norm and RoPE of heads."""

    value: Value
    norm: Norm | None
    rope: Rope | None

    @classmethod
    def of(cls, around: Neighbours, value: Value) -> "_Heads":
        rope = norm = None
        chain = [value]
        before = around.writer(value)
        if isinstance(before, Rope):
            rope = before
            chain.append(rope.source)
            before = around.writer(rope.source)
        if isinstance(before, Norm):
            norm = before
            chain.append(norm.source)
        for link in chain:
            if around.only_reader(link) is None:
                raise GraphError(
                    f"{link.name} is read by others too, but heads are changed in place"
                )
        return cls(chain[-1], norm, rope)


def _cache_layer(op: Op, number: int, layers: Sequence[KvLayer]) -> KvLayer:
    if not 0 <= number < len(layers):
        raise GraphError(f"{op}: there is no cache for layer {number}")
    return layers[number]
