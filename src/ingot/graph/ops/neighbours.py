"""What an operation may ask about the others of its graph while it is fused.

Operations in order come in. Who writes and reads a value goes out; an operation that becomes part
of another one is noted. Knows no particular operation: the rules are `Op.fuse` of each.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingot.graph.ops.record import Op, Value


class Neighbours:
    """Writers and readers of every value."""

    def __init__(self, ops: "Sequence[Op]", keep: Collection[str] = ()) -> None:
        """`keep` names values that are also read after the last operation."""
        self.ops = ops
        self._keep = frozenset(keep)
        self._place: dict[int, int] = {}  # of an operation, by its id
        self._writer: dict[str, int] = {}
        self._readers: dict[str, list[Op]] = {}
        self._taken: set[int] = set()
        for at, op in enumerate(ops):
            self._place[id(op)] = at
            for value in op.inputs:
                self._readers.setdefault(value.name, []).append(op)
            for value in op.outputs:
                self._writer[value.name] = at

    def writer(self, value: "Value") -> "Op":
        """The operation that writes a value."""
        return self.ops[self._writer[value.name]]

    def readers(self, value: "Value") -> "Sequence[Op]":
        """The operations that read a value."""
        return self._readers.get(value.name, [])

    def only_reader(self, value: "Value") -> "Op | None":
        """The operation that reads a value, if it is the only one."""
        readers = self.readers(value)
        return readers[0] if len(readers) == 1 and not self.is_kept(value) else None

    def is_kept(self, value: "Value") -> bool:
        """Whether a value is read after the last operation."""
        return value.name in self._keep

    def is_written_before(self, one: "Value", other: "Value") -> bool:
        """Whether a value is written before another one."""
        return self._writer[one.name] < self._writer[other.name]

    def following(self, op: "Op") -> "Iterator[Op]":
        """An operation and all that follow it."""
        yield from self.ops[self._place[id(op)] :]

    def take(self, *ops: "Op | None") -> None:
        """Note that these are part of another operation."""
        self._taken.update(id(op) for op in ops if op is not None)

    def is_taken(self, op: "Op") -> bool:
        """Whether it is part of another operation."""
        return id(op) in self._taken
