"""Recurrent operations: each keeps a state of every sequence between its tokens."""

from dataclasses import dataclass, field
from typing import ClassVar

from ingot.graph.ops.record import (
    INPUT,
    OUTPUT,
    STATE,
    VECTOR,
    CacheUse,
    Op,
    Value,
    Weight,
)

__all__ = ["CausalConv", "DeltaRule", "StateScan"]

_LANES = 16  # a kernel works on so many channels of a state space together


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalConv(Op):
    """out[t] = bias + the sum over j of weight[:, j] * source[t - taps + 1 + j], or silu of it.

    Every channel by itself, with a row of `taps` weights. What lies before the first token is 0.
    The state of a sequence is its last taps - 1 rows of the source, oldest first.
    """

    label: ClassVar[str] = "convolve"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.MOVED_ON

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    weight: Weight = field(metadata=VECTOR)  # [channels, taps]
    bias: Weight | None = field(metadata=VECTOR)
    state: int = field(metadata=STATE)
    silu: bool = True

    @property
    def remarks(self) -> tuple[str, ...]:
        """How far it looks back."""
        return (f"{self.weight.shape[1]} taps",)

    @property
    def state_floats(self) -> int:
        """[taps - 1][channels]."""
        return self.source.width * (self.weight.shape[1] - 1)

    def fits(self) -> bool:
        """A row of weights and perhaps a bias for each channel."""
        rows, *taps = self.weight.shape
        taps_fit = len(taps) == 1 and taps[0] > 1
        bias = self.bias.shape if self.bias else ()
        return taps_fit and {rows, *bias} == {self.source.width} and self.same_width()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateScan(Op):
    """A state space that every token updates, and what it outputs.

    The channels of x belong to heads, each with a row of `decay`, a number of `skip` and a number
    of `step`; heads belong to groups, each with `states` elements of b and of c. A channel's state
    h has as many elements, all 0 before the first token:

        h = exp(step * decay) * h + step * b * x
        out = h . c + skip * x

    A row of `decay` has an element for each of the state's, or one for all of them.
    """

    label: ClassVar[str] = "scan"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.MOVED_ON

    x: Value = field(metadata=INPUT)
    step: Value = field(metadata=INPUT)
    b: Value = field(metadata=INPUT)
    c: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    decay: Weight = field(metadata=VECTOR)  # [heads, states], or [heads, 1]
    skip: Weight = field(metadata=VECTOR)
    groups: int
    state: int = field(metadata=STATE)

    @property
    def heads(self) -> int:
        """Heads of x."""
        return self.step.width

    @property
    def states(self) -> int:
        """Elements of a channel's state."""
        return self.b.width // self.groups

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its sizes."""
        heads = f"{self.heads} heads" + (f" in {self.groups} groups" if self.groups > 1 else "")
        return heads, f"{self.states} states"

    @property
    def state_floats(self) -> int:
        """[groups][lanes of a group][states][16]: channels of a group, padded to whole lanes."""
        lanes = -(-self.x.width // (self.groups * _LANES))
        return self.groups * lanes * self.states * _LANES

    def fits(self) -> bool:
        """Groups, heads and channels are whole, with the numbers of each."""
        even = self.groups > 0 and not self.heads % self.groups and not self.b.width % self.groups
        if not even or self.x.width % self.heads:
            return False
        decay_fits = self.decay.shape in {(self.heads, self.states), (self.heads, 1)}
        skip_fits = self.skip.shape in {(self.heads,), (self.heads, 1)}
        values_fit = self.b.width == self.c.width and self.x.width == self.out.width
        return decay_fits and skip_fits and values_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRule(Op):
    """The gated delta rule: a matrix for each head that every token corrects, and reads.

    Values belong to heads, queries and keys to fewer key heads; each is divided by its length,
    sqrt(sum of squares + epsilon). A head's matrix s is [key size, value size], all 0 before the
    first token:

        a = exp(decay * softplus(step + bias)),  r = sigmoid(rate)
        s = a * s + outer(k, r * (v - k @ (a * s)))
        out = q @ s / sqrt(key size)

    Head h has key head h // (heads / key_heads), or h % key_heads if heads are `tiled`.
    """

    label: ClassVar[str] = "delta rule"
    needs_all_tokens: ClassVar[bool] = True
    cache_use: ClassVar[CacheUse] = CacheUse.MOVED_ON

    query: Value = field(metadata=INPUT)
    key: Value = field(metadata=INPUT)
    value: Value = field(metadata=INPUT)
    step: Value = field(metadata=INPUT)
    rate: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    decay: Weight = field(metadata=VECTOR)
    bias: Weight = field(metadata=VECTOR)
    key_heads: int
    tiled: bool
    epsilon: float
    state: int = field(metadata=STATE)

    @property
    def heads(self) -> int:
        """Heads of values."""
        return self.step.width

    @property
    def key_size(self) -> int:
        """Elements of a key."""
        return self.key.width // self.key_heads

    @property
    def value_size(self) -> int:
        """Elements of a head's value."""
        return self.value.width // self.heads

    @property
    def remarks(self) -> tuple[str, ...]:
        """Its sizes."""
        matrix = f"{self.key_size} x {self.value_size}"
        return f"{self.heads} heads over {self.key_heads}", f"states of {matrix}"

    @property
    def state_floats(self) -> int:
        """[heads][lanes of a head][key size][16]: columns of a matrix, padded to whole lanes."""
        return self.heads * -(-self.value_size // _LANES) * self.key_size * _LANES

    def fits(self) -> bool:
        """Heads are whole, with the numbers of each."""
        if self.key_heads < 1 or self.heads % self.key_heads:
            return False
        whole = not self.key.width % self.key_heads and not self.value.width % self.heads
        pairs = ((self.query, self.key), (self.value, self.out), (self.step, self.rate))
        same = all(one.width == other.width for one, other in pairs)
        return whole and same and self.decay.shape == self.bias.shape == (self.heads,)
