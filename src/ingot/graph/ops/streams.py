"""Several streams of a token, side by side in one row, and what moves between them (AltUp)."""

from dataclasses import dataclass, field
from typing import ClassVar

from ingot.graph.ops.record import INPUT, OUTPUT, Op, Value

__all__ = ["AddToStreams", "CorrectStreams", "MeanStreams", "MixStreams", "StackStreams"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStreams(Op):
    """out = first, then the streams of others, each made as large as first.

    How large a stream is says the root of its mean square; that of others is at least the root of
    epsilon.
    """

    label: ClassVar[str] = "stack streams"

    first: Value = field(metadata=INPUT)
    others: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    epsilon: float

    def fits(self) -> bool:
        """The others are whole streams."""
        whole = not self.others.width % self.first.width
        return whole and self.out.width == self.first.width + self.others.width


@dataclass(frozen=True, slots=True, kw_only=True)
class MixStreams(Op):
    """out[i] = source[i] + the sum over j of gains[i * streams + j] * source[j]."""

    label: ClassVar[str] = "mix streams"

    source: Value = field(metadata=INPUT)
    gains: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    streams: int

    @property
    def remarks(self) -> tuple[str, ...]:
        """How many there are."""
        return (f"{self.streams} streams",)

    def fits(self) -> bool:
        """A gain for each pair of streams."""
        if self.streams < 1 or self.source.width % self.streams:
            return False
        return self.gains.width == self.streams**2 and self.source.width == self.out.width


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectStreams(Op):
    """out[i] = source[i] + (1 + gains[i]) * (row - source[active])."""

    label: ClassVar[str] = "correct streams"

    source: Value = field(metadata=INPUT)
    row: Value = field(metadata=INPUT)
    gains: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)
    active: int

    @property
    def remarks(self) -> tuple[str, ...]:
        """Which one the row is of."""
        return (f"by stream {self.active} of {self.gains.width}",)

    def fits(self) -> bool:
        """A gain for each stream."""
        streams = self.gains.width
        whole = self.source.width == self.out.width == streams * self.row.width
        return whole and 0 <= self.active < streams


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToStreams(Op):
    """out = source, with row added to every stream but the first."""

    label: ClassVar[str] = "add to streams"

    source: Value = field(metadata=INPUT)
    row: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)

    def fits(self) -> bool:
        """Streams are whole."""
        return self.source.width == self.out.width and not self.source.width % self.row.width


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanStreams(Op):
    """out = the mean of the streams of source."""

    label: ClassVar[str] = "mean of streams"

    source: Value = field(metadata=INPUT)
    out: Value = field(metadata=OUTPUT)

    def fits(self) -> bool:
        """Streams are whole."""
        return not self.source.width % self.out.width
