"""Operations on the rows of a value, one by one: embedding, norms, activations, sums, selection."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from ingot.graph.ops.neighbours import Neighbours
from ingot.graph.ops.record import (
    INPUT,
    OUTPUT,
    TABLE,
    VECTOR,
    Op,
    Record,
    Value,
    Weight,
    plus_residual,
    times,
)

__all__ = [
    "Activate",
    "Activation",
    "Add",
    "Embed",
    "FusedGateRows",
    "FusedNorm",
    "GateRows",
    "KeepPeaks",
    "Norm",
    "NormKind",
    "Normalization",
    "Scale",
    "Select",
    "SoftCap",
    "TakeRows",
    "Xielu",
    "take_residual",
]


class NormKind(StrEnum):
    """How a row is normalized."""

    RMS = "rms"  # x / sqrt(mean(x^2) + eps)
    LAYER = "layer"  # (x - mean(x)) / sqrt(variance(x) + eps)


class Activation(StrEnum):
    """Functions of one number between two linear maps."""

    SILU = "silu"  # x / (1 + exp(-x))
    GELU = "gelu"  # x * Phi(x), exact
    GELU_TANH = "gelu_tanh"  # the tanh approximation of it
    RELU_SQUARED = "relu_squared"  # max(x, 0)^2
    # x * sigmoid(1.702 x) of x = min(gate, 7); what it multiplies is up, kept within 7 either
    # way, plus one
    CLAMPED_SWIGLU = "clamped_swiglu"
    TANH = "tanh"
    SOFTPLUS = "softplus"  # log(1 + exp(x))
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-x))
    RELU = "relu"  # max(x, 0)
    IDENTITY = "identity"  # x


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(Op):
    """out[t] = scale * weight[token[t]] + positions[position[t]] + types[type[t]].

    The last two are optional: learned positions, and a row for each type of token (the texts of a
    pair have different ones).
    """

    label: ClassVar[str] = "embed"
    colour: ClassVar[str] = "#efe3fb"

    weight: Weight = field(metadata=TABLE)
    out: Value = field(metadata=OUTPUT)
    scale: float = 1.0
    positions: Weight | None = field(default=None, metadata=TABLE)
    types: Weight | None = field(default=None, metadata=VECTOR)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its scale and what is added."""
        added = ("+ positions" if self.positions else "", "+ types" if self.types else "")
        return (times(self.scale), *added)

    @property
    def adapted_table(self) -> Weight:
        """Its rows."""
        return self.weight

    @property
    def token_ids(self) -> int:
        """Rows of the embedding."""
        return self.weight.shape[0]

    @property
    def token_types(self) -> int:
        """Rows of the types."""
        return self.types.shape[0] if self.types else 0

    def fits(self) -> bool:
        """Every table has rows as wide as the value."""
        return all(len(w.shape) == 2 and w.shape[1] == self.out.width for w in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRows(Op):
    """out = the rows that come with the batch, one for each token.

    It replaces Embed in a graph that continues what another one computed (`ingot.graph.cut`).
    """

    label: ClassVar[str] = "take rows"

    out: Value = field(metadata=OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalization(Record):
    """normalize(x) * weight + bias, over runs of `run` elements of a row."""

    weight: Weight | None = field(metadata=VECTOR)
    bias: Weight | None = field(metadata=VECTOR)
    kind: NormKind
    epsilon: float
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm(Op):
    """out = normalize(source) * weight + bias, over runs of the length of weight's rows.

    The run is the whole row, or one head if the weight is as long as a head. A weight of several
    rows has one for each head. Without a weight, the run is the row, or as long as `run` says, and
    nothing follows.
    """

    label: ClassVar[str] = "norm"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    weight: Weight | None = field(metadata=VECTOR)
    kind: NormKind
    epsilon: float
    bias: Weight | None = field(default=None, metadata=VECTOR)
    run: int | None = None  # of a norm without a weight

    @property
    def normalization(self) -> Normalization:
        """The same without its values, as a part of other operations."""
        return Normalization(
            weight=self.weight,
            bias=self.bias,
            kind=self.kind,
            epsilon=self.epsilon,
            run=self.weight.shape[-1] if self.weight else self.run or self.source.width,
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its kind, and whether heads have norms of their own."""
        return (_norm_words(self.normalization, self.source),)

    def fits(self) -> bool:
        """Runs are whole, and there are as many biases as weights."""
        if self.weight is None:
            whole = not self.source.width % self.normalization.run
            return whole and self.bias is None and self.same_width()
        *heads, run = self.weight.shape
        if heads:  # a row for each run
            whole = len(heads) == 1 and self.source.width == heads[0] * run
        else:
            whole = self.source.width % run == 0
        bias_fits = self.bias is None or self.bias.shape == self.weight.shape
        return whole and bias_fits and self.same_width()

    def fuse(self, around: Neighbours) -> "FusedNorm":
        """A norm takes the residual that follows. (Operations that it precedes may take it.)"""
        out, residual = take_residual(around, self.out)
        return FusedNorm(
            source=self.source,
            norm=self.normalization,
            residual=residual,
            out=out,
            layer=self.layer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedNorm(Op):
    """out = norm(source) + residual."""

    label: ClassVar[str] = "norm"

    source: Value = field(metadata=INPUT)
    norm: Normalization
    residual: Value | None = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Those of the norm, and the residual."""
        return _norm_words(self.norm, self.source), plus_residual(self.residual)


def _norm_words(norm: Normalization, source: Value) -> str:
    return f"{norm.kind} of each head" if norm.run != source.width else str(norm.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activate(Op):
    """out = activation(gate) * up, or activation(gate) alone."""

    label: ClassVar[str] = "activate"

    gate: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    kind: Activation
    up: Value | None = field(default=None, metadata=INPUT)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The formula."""
        return (f"{self.kind}(gate)" + (" * up" if self.up else ""),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Xielu(Op):
    """out = slope * x + rise * x^2 above 0, slope * x + fall * (exp(x) - 1 - x) below."""

    label: ClassVar[str] = "xielu"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    rise: float
    fall: float
    slope: float

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its three numbers."""
        return (f"rise {self.rise:g}, fall {self.fall:g}, slope {self.slope:g}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Op):
    """out = left + right. If it can, fusion adds a residual in the operation before it."""

    label: ClassVar[str] = "add"

    left: Value = field(metadata=INPUT)
    right: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Op):
    """out = factor * source * weight; the weight has a number for each element, or one for all."""

    label: ClassVar[str] = "scale"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    factor: float = 1.0
    weight: Weight | None = field(default=None, metadata=VECTOR)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What it multiplies by."""
        return times(self.factor), "times a weight" if self.weight else ""

    def fits(self) -> bool:
        """The weight is as wide as the row, or one number."""
        return self.same_width() and (
            self.weight is None or self.weight.shape in {(1,), (self.out.width,)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPeaks(Op):
    """out = max(source - mean - deviations * standard deviation, 0), both those of the row."""

    label: ClassVar[str] = "keep peaks"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    deviations: float

    @property
    def remarks(self) -> tuple[str, ...]:
        """How far above the mean they are."""
        return (f"above {self.deviations:g} deviations",)


def take_residual(around: Neighbours, value: Value) -> tuple[Value, Value | None]:
    """The value after an addition that is its only reader, and what is added.

    What is added must be there already when the value is written.
    """
    reader = around.only_reader(value)
    if isinstance(reader, Add):
        other = reader.left if reader.right == value else reader.right
        if around.is_written_before(other, value):
            around.take(reader)
            return reader.out, other
    return value, None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRows(Op):
    """out = sigmoid(gate) * source, or gate * source. The gate of a token is one number."""

    label: ClassVar[str] = "gate rows"

    source: Value = field(metadata=INPUT)
    gate: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    sigmoid: bool = True

    @property
    def remarks(self) -> tuple[str, ...]:
        """The formula of the gate."""
        return (_gate_words(self.sigmoid),)

    def fits(self) -> bool:
        """One number a row."""
        return self.gate.width == 1 and self.source.width == self.out.width

    def fuse(self, around: Neighbours) -> "FusedGateRows":
        """Takes the residual that follows."""
        out, residual = take_residual(around, self.out)
        return FusedGateRows(
            source=self.source,
            gate=self.gate,
            sigmoid=self.sigmoid,
            residual=residual,
            out=out,
            layer=self.layer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedGateRows(Op):
    """out = sigmoid(gate) * source + residual, or gate * source + residual."""

    label: ClassVar[str] = "gate rows"

    source: Value = field(metadata=INPUT)
    gate: Value = field(metadata=INPUT)
    sigmoid: bool
    residual: Value | None = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The formula of the gate, and the residual."""
        return _gate_words(self.sigmoid), plus_residual(self.residual)


def _gate_words(sigmoid: bool) -> str:
    return "sigmoid(gate)" if sigmoid else "gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Op):
    """out = the rows of source whose logits are wanted; what follows works on those alone."""

    label: ClassVar[str] = "select"
    needs_all_tokens: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftCap(Op):
    """out = cap * tanh(source / cap)."""

    label: ClassVar[str] = "soft cap"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    cap: float

    @property
    def remarks(self) -> tuple[str, ...]:
        """The cap."""
        return (f"{self.cap:g}",)

    def fits(self) -> bool:
        """A cap is above 0."""
        return self.same_width() and self.cap > 0
