"""The vocabulary of a network: values, weights and the operations between them.

A value is a float32 matrix [tokens, width]; the number of tokens is its only free
dimension. A weight is a tensor of the file, by the file's own name. An operation
is a frozen dataclass that names what it reads, what it writes and its constants; what it
computes is said in its docstring and done by a backend. Nothing here knows a backend, an
architecture or a tensor's bytes.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """A float32 matrix [tokens, width] that one operation writes."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the file and the shape it must have (rows first); or some of its rows."""

    name: str
    shape: tuple[int, ...]  # of what is read
    first_row: int = 0
    tensor_rows: int | None = None  # of the whole tensor, where only some are read

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """What the file must hold."""
        return (self.tensor_rows or self.shape[0], *self.shape[1:])

    @property
    def rows(self) -> slice:
        """The rows that are read."""
        return slice(self.first_row, self.first_row + self.shape[0])


_READ = {"role": "input"}
_WRITTEN = {"role": "output"}
_TENSOR = {"role": "weight"}


@cache
def _names(kind: Any, role: str) -> tuple[str, ...]:
    """The fields of a kind of operation that have a role."""
    return tuple(f.name for f in fields(kind) if f.metadata.get("role") == role)


@dataclass(frozen=True, slots=True)
class Op:
    """What every operation can tell: its inputs, outputs and weights, in field order."""

    def _with_role(self, role: str) -> tuple[Any, ...]:
        kind: Any = type(self)
        named = (getattr(self, name) for name in _names(kind, role))
        return tuple(item for item in named if item is not None)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values read."""
        return self._with_role("input")

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values written."""
        return self._with_role("output")

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Tensors of the file that are read."""
        return self._with_role("weight")


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
    TANH = "tanh"
    SOFTPLUS = "softplus"  # log(1 + exp(x))
    # x * sigmoid(1.702 x) of x = min(gate, 7); what it multiplies is up, kept within 7 either
    # way, plus one
    CLAMPED_SWIGLU = "clamped_swiglu"


class Gating(StrEnum):
    """How the scores of experts become weights, and which experts are chosen."""

    SOFTMAX = "softmax"  # of all scores; the largest are chosen
    SIGMOID = "sigmoid"  # of each score; the largest are chosen
    CHOSEN_SOFTMAX = "chosen_softmax"  # the largest scores are chosen, softmax of those alone
    # The largest score that is left, again and again; its weight is its share in the softmax of
    # those left that are near it: largest - score <= near * max(|score|, largest)
    SPARSE_MIXER = "sparse_mixer"


class RopeLayout(StrEnum):
    """Which elements of a head turn together."""

    ADJACENT = "adjacent"  # 2i with 2i+1
    HALVES = "halves"  # i with i + rotary/2


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(Op):
    """out[t] = scale * weight[token[t]] + positions[position[t]] + types[type[t]].

    The last two where there are any: learned positions, and a row for each type of token (the
    texts of a pair have different ones).
    """

    weight: Weight = field(metadata=_TENSOR)
    out: Value = field(metadata=_WRITTEN)
    scale: float = 1.0
    positions: Weight | None = field(default=None, metadata=_TENSOR)
    types: Weight | None = field(default=None, metadata=_TENSOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRows(Op):
    """out = the rows that are handed in with the batch, one for each token.

    In place of an Embed, where a graph goes on with what another one computed
    (`ingot.graph.cut`).
    """

    out: Value = field(metadata=_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm(Op):
    """out = normalize(source) * weight + bias, over runs of the length of weight's rows.

    The run is the whole row, or one head where the weight is as long as a head. A weight of
    several rows has one for each head. Without a weight, the run is the row and nothing follows.
    """

    source: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    weight: Weight | None = field(metadata=_TENSOR)
    kind: NormKind
    epsilon: float
    bias: Weight | None = field(default=None, metadata=_TENSOR)

    @property
    def run(self) -> int:
        """Elements that are normalized together."""
        return self.weight.shape[-1] if self.weight else self.source.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Op):
    """out = scale * (source @ weight.T + bias)."""

    source: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    weight: Weight = field(metadata=_TENSOR)
    bias: Weight | None = field(default=None, metadata=_TENSOR)
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope(Op):
    """Turn the first 2*len(frequencies) elements of every head by position * frequency.

    Cosine and sine are multiplied by `magnitude`.
    """

    source: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    head_size: int
    frequencies: tuple[float, ...]
    layout: RopeLayout
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKv(Op):
    """Store each token's key and value at its position in the layer's cache."""

    key: Value = field(metadata=_READ)
    value: Value = field(metadata=_READ)
    layer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend(Op):
    """Attention of every query head over the layer's cache.

    score = scale * q.k, then cap * tanh(score / cap) if there is a cap; a token sees
    positions p with position - window < p <= position (window 0: all of them), or, if it is
    not causal, its whole sequence, which then must run in one batch. Query head h reads key
    head h // (heads / kv_heads). With sinks, softmax of head h also counts one more score,
    sinks[h], that has no value.
    """

    query: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    layer: int
    heads: int
    kv_heads: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Weight | None = field(default=None, metadata=_TENSOR)
    causal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalConv(Op):
    """out[t] = silu(bias + the sum over j of weight[:, j] * source[t - taps + 1 + j]).

    Every channel by itself, with a row of `taps` weights. What lies before the first token is 0;
    a sequence's last taps - 1 rows of the source are its state (`ingot.graph.states`).
    """

    source: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    weight: Weight = field(metadata=_TENSOR)  # [channels, taps]
    bias: Weight = field(metadata=_TENSOR)
    state: int  # its place among the graph's states


@dataclass(frozen=True, slots=True, kw_only=True)
class StateScan(Op):
    """A state space that every token moves on, and what it shows of it.

    The channels of x belong to heads, each with a row of `decay`, a number of `skip` and a number
    of `step`; heads belong to groups, each with `states` elements of b and of c. A channel's state
    h has as many elements, all 0 before the first token:

        h = exp(step * decay) * h + step * b * x
        out = h . c + skip * x

    A row of `decay` has an element for each of the state's, or one for all of them.
    """

    x: Value = field(metadata=_READ)
    step: Value = field(metadata=_READ)
    b: Value = field(metadata=_READ)
    c: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    decay: Weight = field(metadata=_TENSOR)  # [heads, states], or [heads, 1]
    skip: Weight = field(metadata=_TENSOR)
    groups: int
    state: int  # its place among the graph's states

    @property
    def heads(self) -> int:
        """Heads of x."""
        return self.step.width

    @property
    def states(self) -> int:
        """Elements of a channel's state."""
        return self.b.width // self.groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Activate(Op):
    """out = activation(gate) * up, or activation(gate) alone."""

    gate: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    kind: Activation
    up: Value | None = field(default=None, metadata=_READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Op):
    """out = left + right."""

    left: Value = field(metadata=_READ)
    right: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Op):
    """Choose experts for every token by its scores [experts], and weigh them.

    out = the numbers of the `used` experts that are chosen, best first, then their weights. The
    selection bias is added only to choose; normalized weights are divided by their sum; all are
    multiplied by `scale`.
    """

    scores: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    used: int
    gating: Gating
    normalize: bool = False
    scale: float = 1.0
    near: float = 0.0  # of the sparse mixer
    selection_bias: Weight | None = field(default=None, metadata=_TENSOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLinear(Op):
    """A linear map of every expert that a Route chose, side by side in the order of the choice.

    out[k] = x @ weight[expert k].T + bias[expert k], where x is the source, or its k-th part if
    it is as wide as all of them together. Weights are [experts, rows, columns].
    """

    source: Value = field(metadata=_READ)
    choice: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    weight: Weight = field(metadata=_TENSOR)
    bias: Weight | None = field(default=None, metadata=_TENSOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixExperts(Op):
    """out = the sum of the chosen experts' parts of source, each times its weight."""

    source: Value = field(metadata=_READ)
    choice: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRows(Op):
    """out = sigmoid(gate) * source, where a token's gate is one number."""

    source: Value = field(metadata=_READ)
    gate: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Op):
    """out = the rows of source whose logits are wanted; what follows works on those alone."""

    source: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftCap(Op):
    """out = cap * tanh(source / cap)."""

    source: Value = field(metadata=_READ)
    out: Value = field(metadata=_WRITTEN)
    cap: float
