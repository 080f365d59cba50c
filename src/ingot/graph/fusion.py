"""Fusion: operations that belong together become one, so that values stay in cache.

- a norm joins the linear maps behind it (they normalize and quantize their input once);
- linear maps of the same input become one (query, key, value; gate and up);
- an activation joins the linear map or the gated pair before it;
- an addition joins the linear map or the norm before it (the residual);
- head norms, rotary turns and the write to the cache become one.

A ComputationGraph comes in, a FusedGraph goes out; the values between fused operations
disappear. What a fused operation computes is what its parts did, in the same order.
"""

from dataclasses import dataclass, field, replace

from ingot.errors import GraphError
from ingot.graph import ops as o
from ingot.graph.graph import ComputationGraph, KvLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart:
    """One matrix of a fused linear: out = x @ weight.T + bias + residual."""

    weight: o.Weight
    bias: o.Weight | None
    residual: o.Value | None
    out: o.Value


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLinear:
    """x = norm(source); every part; with an activation: out of the first part =
    activation(part 0) * part 1 (or activation(part 0) alone)."""

    source: o.Value
    norm: o.Norm | None
    parts: tuple[LinearPart, ...]
    activation: o.Activation | None

    @property
    def inputs(self) -> tuple[o.Value, ...]:
        """Values read."""
        return (self.source, *(part.residual for part in self.parts if part.residual))

    @property
    def outputs(self) -> tuple[o.Value, ...]:
        """Values written."""
        parts = self.parts[:1] if self.activation else self.parts
        return tuple(part.out for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedNorm:
    """out = norm(source) + residual."""

    norm: o.Norm
    residual: o.Value | None
    out: o.Value

    @property
    def inputs(self) -> tuple[o.Value, ...]:
        """Values read."""
        return (self.norm.source, self.residual) if self.residual else (self.norm.source,)

    @property
    def outputs(self) -> tuple[o.Value, ...]:
        """Values written."""
        return (self.out,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKv:
    """Norm and turn the heads of query and key in place, then store key and value."""

    query: o.Value
    key: o.Value
    value: o.Value
    query_norm: o.Norm | None
    key_norm: o.Norm | None
    rope: o.Rope | None
    layer: int

    @property
    def inputs(self) -> tuple[o.Value, ...]:
        """Values read (query and key also change)."""
        return self.query, self.key, self.value

    @property
    def outputs(self) -> tuple[o.Value, ...]:
        """Nothing new."""
        return ()


FusedOp = o.Embed | FusedLinear | FusedNorm | StoreKv | o.Attend | o.Select | o.SoftCap


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """Fused operations in the order they run."""

    ops: tuple[FusedOp, ...]
    logits: o.Value
    kv_layers: tuple[KvLayer, ...]


@dataclass(slots=True)
class _Fuser:
    graph: ComputationGraph
    writer: dict[str, o.Op] = field(default_factory=dict)
    readers: dict[str, list[o.Op]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)  # ids of operations that are part of another
    fused: list[FusedOp] = field(default_factory=list)

    def __post_init__(self) -> None:
        for op in self.graph.ops:
            for value in op.inputs:
                self.readers.setdefault(value.name, []).append(op)
            for value in op.outputs:
                self.writer[value.name] = op

    def only_reader(self, value: o.Value) -> o.Op | None:
        readers = self.readers.get(value.name, [])
        return readers[0] if len(readers) == 1 else None

    def take_residual(self, value: o.Value) -> tuple[o.Value, o.Value | None]:
        """The value after an addition that is its only reader, and what is added."""
        reader = self.only_reader(value)
        if isinstance(reader, o.Add) and reader.right == value:
            self.taken.add(id(reader))
            return reader.out, reader.left
        return value, None

    def linears_of(self, source: o.Value, at: int) -> list[o.Linear]:
        """The linear maps of a value that stand next to each other, from index `at`."""
        group = []
        for op in self.graph.ops[at:]:
            if not isinstance(op, o.Linear) or op.source != source:
                break
            group.append(op)
        return group

    def linear(self, first: o.Linear, at: int) -> FusedLinear:
        before = self.writer[first.source.name]
        norm = before if isinstance(before, o.Norm) and self.is_linear_input(before) else None
        group = self.linears_of(first.source, at)
        self.taken.update(id(op) for op in group)
        activate = self.only_reader(group[0].out)
        activation = None
        outs: list[tuple[o.Value, o.Value | None]] = [(op.out, None) for op in group]
        if len(group) == 1:
            outs = [self.take_residual(first.out)]
        if isinstance(activate, o.Activate):
            self.taken.add(id(activate))
            activation = activate.kind
            outs = [(activate.out, None)] * len(group)
        return FusedLinear(
            source=norm.source if norm else first.source,
            norm=norm,
            parts=tuple(
                LinearPart(weight=op.weight, bias=op.bias, residual=residual, out=out)
                for op, (out, residual) in zip(group, outs, strict=True)
            ),
            activation=activation,
        )

    def is_linear_input(self, norm: o.Norm) -> bool:
        return all(isinstance(op, o.Linear) for op in self.readers[norm.out.name])

    def head_chain(self, turned: o.Value) -> tuple[o.Value, o.Norm | None, o.Rope | None]:
        """Back from an attention input to the linear map: its value, norm and turn."""
        rope = norm = None
        before = self.writer[turned.name]
        if isinstance(before, o.Rope):
            rope, turned = before, before.source
            before = self.writer[turned.name]
        if isinstance(before, o.Norm):
            norm, turned = before, before.source
        self.taken.update(id(op) for op in (rope, norm) if op)
        return turned, norm, rope

    def run(self) -> FusedGraph:
        stores = {op.layer: op for op in self.graph.ops if isinstance(op, o.WriteKv)}
        attends = {op.layer: op for op in self.graph.ops if isinstance(op, o.Attend)}
        queries: dict[int, o.Value] = {}
        heads: dict[int, StoreKv] = {}
        for layer, write in stores.items():
            query, query_norm, rope = self.head_chain(attends[layer].query)
            key, key_norm, _ = self.head_chain(write.key)
            queries[layer] = query
            heads[layer] = StoreKv(
                query=query,
                key=key,
                value=write.value,
                query_norm=query_norm,
                key_norm=key_norm,
                rope=rope,
                layer=layer,
            )
        for at, op in enumerate(self.graph.ops):
            if id(op) in self.taken:
                continue
            match op:
                case o.Embed() | o.Select() | o.SoftCap():
                    self.fused.append(op)
                case o.Norm() if self.is_linear_input(op):
                    pass
                case o.Norm():
                    out, residual = self.take_residual(op.out)
                    self.fused.append(FusedNorm(norm=op, residual=residual, out=out))
                case o.Linear():
                    self.fused.append(self.linear(op, at))
                case o.WriteKv():
                    self.fused.append(heads[op.layer])
                case o.Attend():
                    self.fused.append(replace(op, query=queries[op.layer]))
                case _:
                    raise GraphError(f"{type(op).__name__} cannot stand alone in a fused graph")
        return FusedGraph(tuple(self.fused), self.graph.logits, self.graph.kv_layers)


def fuse(graph: ComputationGraph) -> FusedGraph:
    """Fuse all that belongs together."""
    return _Fuser(graph).run()
