"""Builder: operations of a graph, written down one by one under the names of a layer.

Knows single operations; the blocks that are made of them are in `lower.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ingot.graph import KvLayer
from ingot.graph import ops as o
from ingot.graph.ops.record import layer_prefix
from ingot.models.spec import NormSpec, RopeSpec, TemperSpec, XieluSpec


@dataclass(slots=True)
class Builder:
    """Collects operations; each method appends one and returns what it writes."""

    stack: str = ""  # see `Network.stack`
    layer: int | None = None  # that is being built; None before the first and after the last
    ops: list[o.Op] = field(default_factory=list)
    streams: list[o.Value] = field(default_factory=list)  # before each layer and after the last one
    states: int = 0  # of recurrent operations so far
    kv_layers: list[KvLayer] = field(default_factory=list)
    kv_layer_of: dict[int, int] = field(default_factory=dict)  # by the layer that writes it
    cross_layer_of: dict[int, int] = field(default_factory=dict)  # by the layer that reads it
    chosen: o.Value | None = None  # the positions that the last indexer chose
    # Layers of the cache that a decoder has, for the layer of its encoder with the same number.
    lent: Mapping[int, int] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """How the names of the layer begin."""
        return layer_prefix(self.layer, self.stack)

    def append(self, op: o.Op) -> None:
        """An operation of the layer."""
        self.ops.append(replace(op, layer=self.layer))

    def value(self, name: str, width: int) -> o.Value:
        """A value of the layer."""
        return o.Value(self.prefix + name, width)

    def weight(self, name: str, *shape: int) -> o.Weight:
        """A tensor of the layer."""
        return o.Weight(self.prefix + name, shape)

    def new_state(self) -> int:
        """The number of one more state."""
        self.states += 1
        return self.states - 1

    def new_kv_layer(self, layer: KvLayer) -> int:
        """The number of one more layer of the cache, or of the one that is lent to the layer."""
        number = self.lent.get(-1 if self.layer is None else self.layer)
        if number is None:
            self.kv_layers.append(layer)
            number = len(self.kv_layers) - 1
        if self.layer is not None:
            self.kv_layer_of[self.layer] = number
        return number

    def norm(
        self,
        source: o.Value,
        spec: NormSpec,
        *,
        shape: tuple[int, ...] | None = None,
        suffix: str = "",
    ) -> o.Value:
        """A norm; `shape` is its weight's, where that is not as long as the row."""
        shape = shape or (source.width,)
        out = self.value(spec.name + suffix, source.width)
        name = spec.name if spec.plain_name else f"{spec.name}.weight"
        self.append(
            o.Norm(
                source=source,
                out=out,
                weight=self.weight(name, *shape) if spec.weight else None,
                bias=self.weight(f"{spec.name}.bias", *shape) if spec.bias else None,
                kind=spec.kind,
                epsilon=spec.epsilon,
                run=None if spec.weight else shape[-1],
            )
        )
        return out

    def optional_norm(self, source: o.Value, spec: NormSpec | None, suffix: str = "") -> o.Value:
        """The same value where there is no norm."""
        return self.norm(source, spec, suffix=suffix) if spec else source

    def linear(
        self,
        source: o.Value,
        name: str,
        width: int,
        *,
        bias: bool = False,
        scale: float = 1.0,
        fused: tuple[str, int, int] | None = None,
    ) -> o.Value:
        """A linear map.

        `fused`: the tensor whose rows it has, the first of them, and how many there are.
        """
        out = self.value(name, width)
        tensor, first, rows = fused or (name, 0, width)

        def weight(ending: str, *columns: int) -> o.Weight:
            part = (first, rows) if fused else ()
            return o.Weight(f"{self.prefix}{tensor}.{ending}", (width, *columns), *part)

        self.append(
            o.Linear(
                source=source,
                out=out,
                weight=weight("weight", source.width),
                bias=weight("bias") if bias else None,
                scale=scale,
            )
        )
        return out

    def rope(self, source: o.Value, spec: RopeSpec, head_size: int) -> o.Value:
        """Heads rotated by their positions."""
        out = self.value(f"{source.name.removeprefix(self.prefix)}.rope", source.width)
        self.append(
            o.Rope(
                source=source,
                out=out,
                head_size=head_size,
                frequencies=spec.frequencies,
                layout=spec.layout,
                magnitude=spec.magnitude,
            )
        )
        return out

    def pick_heads(self, source: o.Value, name: str, heads: int, first: int, size: int) -> o.Value:
        """Some elements of every head."""
        out = self.value(name, heads * size)
        self.append(o.PickHeads(source=source, out=out, heads=heads, first=first))
        return out

    def temper(self, source: o.Value, spec: TemperSpec) -> o.Value:
        """Queries that grow with their positions."""
        out = self.value(f"{source.name.removeprefix(self.prefix)}.tempered", source.width)
        self.append(
            o.Temper(
                source=source, out=out, scale=spec.scale, length=spec.length, offset=spec.offset
            )
        )
        return out

    def add(self, left: o.Value, right: o.Value, name: str) -> o.Value:
        """A sum."""
        out = self.value(name, left.width)
        self.append(o.Add(left=left, right=right, out=out))
        return out

    def scale(
        self, source: o.Value, name: str, factor: float = 1.0, weight: o.Weight | None = None
    ) -> o.Value:
        """A value times numbers."""
        out = self.value(name, source.width)
        self.append(o.Scale(source=source, out=out, factor=factor, weight=weight))
        return out

    def keep_peaks(self, source: o.Value, name: str, deviations: float) -> o.Value:
        """What is far above the mean of a row."""
        out = self.value(name, source.width)
        self.append(o.KeepPeaks(source=source, out=out, deviations=deviations))
        return out

    def activate(self, gate: o.Value, up: o.Value | None, name: str, kind: o.Activation) -> o.Value:
        """activation(gate) * up, or activation(gate) alone."""
        out = self.value(name, gate.width)
        self.append(o.Activate(gate=gate, up=up, out=out, kind=kind))
        return out

    def gated(self, gate: o.Value | None, up: o.Value, name: str, kind: o.Activation) -> o.Value:
        """activation(gate) * up, or activation(up) if there is no gate."""
        return self.activate(gate, up, name, kind) if gate else self.activate(up, None, name, kind)

    def xielu(self, source: o.Value, name: str, spec: XieluSpec) -> o.Value:
        """An activation with numbers of its own."""
        out = self.value(name, source.width)
        self.append(
            o.Xielu(source=source, out=out, rise=spec.rise, fall=spec.fall, slope=spec.slope)
        )
        return out

    def select(self, source: o.Value) -> o.Value:
        """The rows that are asked about."""
        out = self.value(f"{source.name.rpartition('.')[2]}.selected", source.width)
        self.append(o.Select(source=source, out=out))
        return out
