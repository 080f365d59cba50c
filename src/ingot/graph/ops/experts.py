"""Mixture of experts: the router, the experts' linear maps, and the sum of what they computed."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from ingot.errors import GraphError
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
from ingot.graph.ops.rows import Activate, Activation, take_residual

__all__ = [
    "ExpertGate",
    "ExpertLinear",
    "ExpertMix",
    "ExpertPart",
    "Gating",
    "MixExperts",
    "Route",
]


class Gating(StrEnum):
    """How the scores of experts become weights, and which experts are chosen."""

    SOFTMAX = "softmax"  # of all scores; the largest are chosen
    SIGMOID = "sigmoid"  # of each score; the largest are chosen
    CHOSEN_SOFTMAX = "chosen_softmax"  # the largest scores are chosen, softmax of those alone
    # The largest score that is left, again and again; its weight is its share in the softmax of
    # those left that are near it: largest - score <= near * max(|score|, largest)
    SPARSE_MIXER = "sparse_mixer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Op):
    """Choose experts for every token by its scores [experts], and weigh them.

    out = the numbers of the `used` experts that are chosen, best first, then their weights. The
    selection bias is added only to choose; normalized weights are divided by their sum; all are
    multiplied by `scale`, and each by the one of its expert.

    Experts lie in `groups` of equal size. Only those of the best `groups_used` are chosen; a group
    counts as much as the `group_best` largest ranks in it together.
    """

    label: ClassVar[str] = "route"

    scores: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    used: int
    gating: Gating
    normalize: bool = False
    scale: float = 1.0
    near: float = 0.0  # of the sparse mixer
    selection_bias: Weight | None = field(default=None, metadata=VECTOR)
    expert_scales: Weight | None = field(default=None, metadata=VECTOR)
    groups: int = 1
    groups_used: int = 1
    group_best: int = 1

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many are chosen, and how."""
        return (
            f"{self.used} of {self.scores.width}",
            f"in {self.groups_used} of {self.groups} groups" if self.groups > 1 else "",
            str(self.gating),
            "selection bias" if self.selection_bias else "",
            "normalized" if self.normalize else "",
            times(self.scale),
            "times a scale of each" if self.expert_scales else "",
        )

    def fits(self) -> bool:
        """At least one and at most all experts are chosen, those of all groups that are used."""
        vectors = [w for w in (self.selection_bias, self.expert_scales) if w]
        size, rest = divmod(self.scores.width, self.groups)
        grouped = not rest and self.groups_used <= self.groups and 1 <= self.group_best <= size
        chosen = 1 <= self.used <= self.groups_used * size and self.out.width == 2 * self.used
        return grouped and chosen and all(w.shape == (self.scores.width,) for w in vectors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLinear(Op):
    """A linear map of every expert that a Route chose, side by side in the order of the choice.

    out[k] = x @ weight[expert k].T + bias[expert k], where x is the source, or its k-th part if
    it is as wide as all of them together. Weights are [experts, rows, columns]; of an expert's rows
    `rows` from `first` on are read, or all.
    """

    label: ClassVar[str] = "expert linear"

    source: Value = field(metadata=INPUT)
    choice: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    weight: Weight = field(metadata=MATRIX)
    bias: Weight | None = field(default=None, metadata=VECTOR)
    first: int = 0
    rows: int | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many experts work."""
        return (_experts(self.choice, self.weight),)

    @property
    def part(self) -> "ExpertPart":
        """The same without its values, as a part of other operations."""
        rows = self.weight.shape[1] if self.rows is None else self.rows
        return ExpertPart(weight=self.weight, bias=self.bias, first=self.first, rows=rows)

    @property
    def adapted_experts(self) -> "tuple[ExpertPart, ...]":
        """Its matrices."""
        return (self.part,)

    def fits(self) -> bool:
        """One matrix for each expert; one input for all that a token uses, or one for each."""
        if len(self.weight.shape) != 3:
            return False
        experts, rows, columns = self.weight.shape
        used = self.choice.width // 2
        bias_fits = self.bias is None or self.bias.shape == (experts, rows)
        inside = 0 <= self.first < self.first + self.part.rows <= rows
        whole = self.out.width == used * self.part.rows
        return bias_fits and inside and whole and self.source.width in {columns, used * columns}

    def fuse(self, around: Neighbours) -> "ExpertGate | ExpertMix":
        """A gate takes its up and activation, a down takes its mix and the residual."""
        reader = around.only_reader(self.out)
        all_rows = self.part.rows == self.weight.shape[1]
        if isinstance(reader, MixExperts) and reader.choice == self.choice and all_rows:
            around.take(reader)
            out, residual = take_residual(around, reader.out)
            return ExpertMix(
                source=self.source,
                choice=self.choice,
                weight=self.weight,
                bias=self.bias,
                residual=residual,
                out=out,
                layer=self.layer,
            )
        if isinstance(reader, Activate) and reader.gate == self.out:
            up = around.writer(reader.up) if reader.up else None
            same = isinstance(up, ExpertLinear) and up.inputs == self.inputs
            if up is None or (same and around.only_reader(up.outputs[0]) is reader):
                around.take(reader, up)
                return ExpertGate(
                    source=self.source,
                    choice=self.choice,
                    parts=tuple(op.part for op in (self, up) if isinstance(op, ExpertLinear)),
                    activation=reader.kind,
                    out=reader.out,
                    layer=self.layer,
                )
        raise GraphError(
            f"the experts' {self.out.name} must be read by one operation alone: an activation "
            "(with an up of the same experts, after the gate) or a mix"
        )


def _experts(choice: Value, weight: Weight) -> str:
    return f"{choice.width // 2} of {weight.shape[0]} experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPart(Record):
    """The matrices of all experts, [experts, rows, columns], and their biases.

    Of an expert's rows, `rows` from `first` on are read.
    """

    weight: Weight = field(metadata=MATRIX)
    bias: Weight | None = field(metadata=VECTOR)
    first: int
    rows: int

    @property
    def read(self) -> slice:
        """The rows of an expert that are read."""
        return slice(self.first, self.first + self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGate(Op):
    """out = activation(gate) * up (or activation(gate) alone) of every chosen expert.

    The parts are gate and perhaps up.
    """

    label: ClassVar[str] = "expert gate"

    source: Value = field(metadata=INPUT)
    choice: Value = field(metadata=INPUT)
    parts: tuple[ExpertPart, ...]
    activation: Activation
    out: Value = field(metadata=OUTPUT)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many experts work, and the formula."""
        gate = f"{self.activation}(gate)" + (" * up" if len(self.parts) > 1 else "")
        return _experts(self.choice, self.parts[0].weight), gate

    @property
    def adapted_experts(self) -> tuple[ExpertPart, ...]:
        """Those of the parts."""
        return self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class MixExperts(Op):
    """out = the sum of the chosen experts' parts of source, each times its weight."""

    label: ClassVar[str] = "expert mix"

    source: Value = field(metadata=INPUT)
    choice: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)

    def fits(self) -> bool:
        """The source has a part for each chosen expert."""
        return self.source.width * 2 == self.choice.width * self.out.width

    def fuse(self, around: Neighbours) -> None:
        """The linear map of the experts takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMix(Op):
    """out = the chosen experts' linear maps, summed by their weights, + residual."""

    label: ClassVar[str] = "expert mix"

    source: Value = field(metadata=INPUT)
    choice: Value = field(metadata=INPUT)
    weight: Weight = field(metadata=MATRIX)
    bias: Weight | None = field(metadata=VECTOR)
    residual: Value | None = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many experts work, and the residual."""
        return _experts(self.choice, self.weight), plus_residual(self.residual)

    @property
    def adapted_experts(self) -> tuple[ExpertPart, ...]:
        """Its matrices, all rows of them."""
        rows = self.weight.shape[1]
        return (ExpertPart(weight=self.weight, bias=self.bias, first=0, rows=rows),)
