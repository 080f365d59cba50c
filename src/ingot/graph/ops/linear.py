"""Linear maps, and what is computed in the same pass: norm before, activation or residual after."""

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from ingot.graph.ops.neighbours import Neighbours
from ingot.graph.ops.record import (
    INPUT,
    MATRIX,
    OUTPUT,
    VECTOR,
    Op,
    Record,
    Value,
    Weight,
    plus_residual,
    times,
)
from ingot.graph.ops.rows import Activate, Activation, Norm, Normalization, take_residual

__all__ = ["FusedLinear", "Linear", "LinearPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Op):
    """out = scale * (source @ weight.T + bias).

    A stack of matrices counts as one with the rows of all.
    """

    label: ClassVar[str] = "linear"
    colour: ClassVar[str] = "#dbe9ff"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    weight: Weight = field(metadata=MATRIX)
    bias: Weight | None = field(default=None, metadata=VECTOR)
    scale: float = 1.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its scale."""
        return (times(self.scale),)

    @property
    def adapted_matrices(self) -> tuple[Weight, ...]:
        """Its matrix."""
        return (self.weight,)

    def fits(self) -> bool:
        """The matrix stands between its values."""
        *rows, columns = self.weight.shape
        bias_fits = self.bias is None or self.bias.shape == (self.out.width,)
        return (prod(rows), columns) == (self.out.width, self.source.width) and bias_fits

    def fuse(self, around: Neighbours) -> "FusedLinear":
        """Takes the linear maps of the same input that follow it (query, key, value; gate and up).

        Besides those, the norm before them, and an activation or a residual after them.
        """
        group = self._with_same_input(around)
        around.take(*group[1:])
        norm = _norm_before(around, self.source)
        activate = _activation_of(around, group)
        around.take(norm, activate)
        outs: list[tuple[Value, Value | None]] = [(op.out, None) for op in group]
        if activate:
            outs = [(activate.out, None)] * len(group)
        elif len(group) == 1:
            outs = [take_residual(around, self.out)]
        return FusedLinear(
            source=norm.source if norm else self.source,
            norm=norm.normalization if norm else None,
            parts=tuple(
                LinearPart(
                    weight=op.weight, bias=op.bias, scale=op.scale, residual=residual, out=out
                )
                for op, (out, residual) in zip(group, outs, strict=True)
            ),
            activation=activate.kind if activate else None,
            layer=self.layer,
        )

    def _with_same_input(self, around: Neighbours) -> "list[Linear]":
        """The linear maps from here on that read the same value, one next to the other."""
        group = []
        for op in around.following(self):
            if not isinstance(op, Linear) or op.source != self.source:
                break
            group.append(op)
        return group


def _norm_before(around: Neighbours, source: Value) -> Norm | None:
    """The norm that makes an input, if only linear maps read it."""
    norm = around.writer(source)
    if not isinstance(norm, Norm) or around.is_kept(source):
        return None
    return norm if all(isinstance(op, Linear) for op in around.readers(source)) else None


def _activation_of(around: Neighbours, group: list[Linear]) -> Activate | None:
    """The activation of a gate, or of a gate and the linear map that follows it."""
    outs = tuple(op.out for op in group)
    reader = around.only_reader(outs[0])
    if not isinstance(reader, Activate) or reader.inputs != outs:
        return None
    return reader if all(around.only_reader(out) is reader for out in outs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPart(Record):
    """One matrix of a fused linear: out = scale * (x @ weight.T + bias) + residual."""

    weight: Weight = field(metadata=MATRIX)
    bias: Weight | None = field(metadata=VECTOR)
    scale: float
    residual: Value | None = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLinear(Op):
    """x = norm(source), then every part.

    With an activation, the out of the first part is activation(part 0) * part 1, or
    activation(part 0) alone.
    """

    label: ClassVar[str] = "linear"
    colour: ClassVar[str] = Linear.colour

    source: Value = field(metadata=INPUT)
    norm: Normalization | None
    parts: tuple[LinearPart, ...]
    activation: Activation | None

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Those of the parts; with an activation there is one."""
        return tuple(part.out for part in (self.parts[:1] if self.activation else self.parts))

    @property
    def adapted_matrices(self) -> tuple[Weight, ...]:
        """Those of the parts."""
        return tuple(part.weight for part in self.parts)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What comes before and after the matrices."""
        gate = f"{self.activation}(gate)" if self.activation else ""
        residuals = [part.residual for part in self.parts if part.residual]
        return (
            f"after {self.norm.kind} norm" if self.norm else "",
            f"{gate} * up" if gate and len(self.parts) > 1 else gate,
            times(self.parts[0].scale),
            plus_residual(residuals[0] if residuals else None),
        )
