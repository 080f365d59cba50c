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

__all__ = ["CausalConv", "StateScan"]

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
