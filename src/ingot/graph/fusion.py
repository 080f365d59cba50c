"""Fusion: operations that belong together become one, so that values stay in cache.

- a norm joins the linear maps behind it (they normalize and quantize their input once);
- linear maps of the same input become one (query, key, value; gate and up);
- an activation joins the linear map or the gated pair before it;
- an addition joins the linear map or the norm before it (the residual);
- gate, up and activation of the chosen experts become one, and so do their down and mix;
- head norms, rotary turns and the write to the cache become one.

A ComputationGraph comes in, a FusedGraph goes out; the values between fused operations
disappear. What a fused operation computes is what its parts did, in the same order.
"""

from dataclasses import dataclass, field, replace

from ingot.errors import GraphError
from ingot.graph import ops as o
from ingot.graph.check import KvLayer
from ingot.graph.graph import ComputationGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart:
    """One matrix of a fused linear: out = scale * (x @ weight.T + bias) + residual."""

    weight: o.Weight
    bias: o.Weight | None
    scale: float
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGate:
    """out = activation(gate) * up (or activation(gate) alone) of every chosen expert."""

    gate: o.ExpertLinear
    up: o.ExpertLinear | None
    activation: o.Activation
    out: o.Value

    @property
    def inputs(self) -> tuple[o.Value, ...]:
        """Values read."""
        return self.gate.inputs

    @property
    def outputs(self) -> tuple[o.Value, ...]:
        """Values written."""
        return (self.out,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMix:
    """out = the chosen experts' linear maps, summed by their weights, + residual."""

    linear: o.ExpertLinear
    residual: o.Value | None
    out: o.Value

    @property
    def inputs(self) -> tuple[o.Value, ...]:
        """Values read."""
        return (*self.linear.inputs, *((self.residual,) if self.residual else ()))

    @property
    def outputs(self) -> tuple[o.Value, ...]:
        """Values written."""
        return (self.out,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedGateRows:
    """out = sigmoid(gate) * source + residual."""

    gated: o.GateRows
    residual: o.Value | None
    out: o.Value

    @property
    def inputs(self) -> tuple[o.Value, ...]:
        """Values read."""
        return (*self.gated.inputs, *((self.residual,) if self.residual else ()))

    @property
    def outputs(self) -> tuple[o.Value, ...]:
        """Values written."""
        return (self.out,)


FusedOp = (
    o.Embed
    | o.TakeRows
    | FusedLinear
    | FusedNorm
    | StoreKv
    | o.Attend
    | o.Select
    | o.SoftCap
    | o.Route
    | ExpertGate
    | ExpertMix
    | FusedGateRows
    | o.Activate
    | o.CausalConv
    | o.StateScan
)


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
    written: dict[str, int] = field(default_factory=dict)  # index of the writer
    readers: dict[str, list[o.Op]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)  # ids of operations that are part of another
    fused: list[FusedOp] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at, op in enumerate(self.graph.ops):
            for value in op.inputs:
                self.readers.setdefault(value.name, []).append(op)
            for value in op.outputs:
                self.writer[value.name] = op
                self.written[value.name] = at

    def only_reader(self, value: o.Value) -> o.Op | None:
        readers = self.readers.get(value.name, [])
        return readers[0] if len(readers) == 1 else None

    def take_residual(self, value: o.Value) -> tuple[o.Value, o.Value | None]:
        """The value after an addition that is its only reader, and what is added.

        What is added must be there already when the value is written.
        """
        reader = self.only_reader(value)
        if isinstance(reader, o.Add):
            other = reader.left if reader.right == value else reader.right
            if self.written[other.name] < self.written[value.name]:
                self.taken.add(id(reader))
                return reader.out, other
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
        activate = self.activation_of(group)
        activation = None
        outs: list[tuple[o.Value, o.Value | None]] = [(op.out, None) for op in group]
        if len(group) == 1:
            outs = [self.take_residual(first.out)]
        if activate:
            self.taken.add(id(activate))
            activation = activate.kind
            outs = [(activate.out, None)] * len(group)
        return FusedLinear(
            source=norm.source if norm else first.source,
            norm=norm,
            parts=tuple(
                LinearPart(
                    weight=op.weight, bias=op.bias, scale=op.scale, residual=residual, out=out
                )
                for op, (out, residual) in zip(group, outs, strict=True)
            ),
            activation=activation,
        )

    def activation_of(self, group: list[o.Linear]) -> o.Activate | None:
        """The activation of a gate, or of a gate and the linear map that follows it."""
        reader = self.only_reader(group[0].out)
        outs = tuple(op.out for op in group)
        if not isinstance(reader, o.Activate) or reader.inputs != outs:
            return None
        return reader if all(self.only_reader(out) is reader for out in outs) else None

    def experts(self, first: o.ExpertLinear) -> ExpertGate | ExpertMix:
        """A gate with its up and activation, or a down with its mix."""
        reader = self.only_reader(first.out)
        if isinstance(reader, o.MixExperts) and reader.choice == first.choice:
            self.taken.add(id(reader))
            out, residual = self.take_residual(reader.out)
            return ExpertMix(linear=first, residual=residual, out=out)
        if isinstance(reader, o.Activate) and reader.gate == first.out:
            up = self.writer[reader.up.name] if reader.up else None
            same = isinstance(up, o.ExpertLinear) and up.inputs == first.inputs
            if up is None or (same and self.only_reader(up.outputs[0]) is reader):
                self.taken.update(id(op) for op in (reader, up) if op)
                gate = up if isinstance(up, o.ExpertLinear) else None
                return ExpertGate(gate=first, up=gate, activation=reader.kind, out=reader.out)
        raise GraphError(
            f"the experts' {first.out.name} must be read by one operation alone: an activation "
            "(with an up of the same experts, behind the gate) or a mix"
        )

    def is_linear_input(self, norm: o.Norm) -> bool:
        readers = self.readers.get(norm.out.name, [])
        return bool(readers) and all(isinstance(op, o.Linear) for op in readers)

    def head_chain(self, turned: o.Value) -> tuple[o.Value, o.Norm | None, o.Rope | None]:
        """Back from an attention input to the linear map: its value, norm and turn."""
        rope = norm = None
        chain = [turned]
        before = self.writer[turned.name]
        if isinstance(before, o.Rope):
            rope = before
            chain.append(before.source)
            before = self.writer[before.source.name]
        if isinstance(before, o.Norm):
            norm = before
            chain.append(before.source)
        for value in chain:
            if self.only_reader(value) is None:
                raise GraphError(
                    f"{value.name} is read by others too, but heads are turned in place"
                )
        self.taken.update(id(op) for op in (rope, norm) if op)
        return chain[-1], norm, rope

    def heads(self, write: o.WriteKv, attend: o.Attend) -> StoreKv:
        """What happens to the heads of a layer between its linear maps and its cache."""
        query, query_norm, rope = self.head_chain(attend.query)
        key, key_norm, key_rope = self.head_chain(write.key)
        turns = [replace(turn, source=key, out=key) for turn in (rope, key_rope) if turn]
        if len(turns) == 1 or len(set(turns)) > 1:
            raise GraphError(f"query and key of layer {write.layer} are turned differently")
        return StoreKv(
            query=query,
            key=key,
            value=write.value,
            query_norm=query_norm,
            key_norm=key_norm,
            rope=rope,
            layer=write.layer,
        )

    def run(self) -> FusedGraph:
        stores = {op.layer: op for op in self.graph.ops if isinstance(op, o.WriteKv)}
        attends = {op.layer: op for op in self.graph.ops if isinstance(op, o.Attend)}
        if stores.keys() != attends.keys():
            raise GraphError("a layer of the cache is stored or read, but not both")
        heads = {layer: self.heads(write, attends[layer]) for layer, write in stores.items()}
        for at, op in enumerate(self.graph.ops):
            if id(op) in self.taken:
                continue
            match op:
                case (
                    o.Embed()
                    | o.TakeRows()
                    | o.Select()
                    | o.SoftCap()
                    | o.Route()
                    | o.Activate()
                    | o.CausalConv()
                    | o.StateScan()
                ):
                    self.fused.append(op)
                case o.ExpertLinear():
                    self.fused.append(self.experts(op))
                case o.GateRows():
                    out, residual = self.take_residual(op.out)
                    self.fused.append(FusedGateRows(gated=op, residual=residual, out=out))
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
                    self.fused.append(replace(op, query=heads[op.layer].query))
                case _:
                    raise GraphError(f"{type(op).__name__} cannot stand alone in a fused graph")
        return FusedGraph(tuple(self.fused), self.graph.logits, self.graph.kv_layers)


def fuse(graph: ComputationGraph) -> FusedGraph:
    """Fuse all that belongs together."""
    return _Fuser(graph).run()
