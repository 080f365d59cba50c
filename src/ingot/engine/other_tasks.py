"""Tasks that write no text: rows of logits, a text to be saved, and beam search.

Each has a channel for its result, strands that the scheduler runs, and a way to go on with the
logits of a step.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ingot.engine.channel import Channel
from ingot.engine.strand import Strand
from ingot.kvcache import BlockCopy
from ingot.sampling import BeamSearch

Ints = NDArray[np.int32]
Logits = NDArray[np.float32]
Consume = Callable[[int, Logits], None]  # position of the first row, rows


class RowsTask:
    """Hands the logits of every token from `first` on to a function, some rows at a time."""

    def __init__(self, tokens: Ints, first: int, consume: Consume) -> None:
        self.channel: Channel[bool] = Channel()
        self.strands = [Strand(tokens, rows_from=first)]
        self._consume = consume

    def receive(self, _: Strand, start: int, rows: Logits) -> None:
        """Take the rows of a step."""
        self._consume(start, rows)

    def advance(self) -> None:
        """All tokens have run."""
        self.channel.finish(True)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self.channel.fail(error)


class KeepTask:
    """Runs a text and shows its place in the cache to a function."""

    def __init__(self, tokens: Ints, prompted: int, show: Callable[[Strand], None]) -> None:
        self.channel: Channel[bool] = Channel()
        self.strands = [Strand(tokens, prompted)]
        self._show = show

    def receive(self, strand: Strand, start: int, rows: Logits) -> None:
        """The logits are of no use."""

    def advance(self) -> None:
        """All tokens have run."""
        self._show(self.strands[0])
        self.channel.finish(True)

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self.channel.fail(error)


class BeamTask:
    """Takes a beam search to its end, or to the end of the context."""

    def __init__(
        self,
        tokens: Ints,
        search: BeamSearch,
        context: int,
        threads: int,
        copy_blocks: Callable[[Sequence[BlockCopy]], None],
    ) -> None:
        self.channel: Channel[bool] = Channel()
        self.strands = [Strand(tokens)]
        self._search = search
        self._context = context
        self._threads = threads
        self._copy_blocks = copy_blocks
        self._rows: dict[int, Logits] = {}  # by strand: they may come in several steps

    def receive(self, strand: Strand, _: int, rows: Logits) -> None:
        """Take the row of a strand."""
        self._rows[id(strand)] = rows

    def advance(self) -> None:
        """All strands have run: move on to the next tokens of each beam."""
        rows = np.concatenate([self._rows[id(strand)] for strand in self.strands])
        self._rows.clear()
        moves = self._search.step(rows, self._threads)
        if self._search.done or len(self.strands[0]) == self._context:
            self.channel.finish(True)
            return
        self._follow([move.parent for move in moves])
        for strand, move in zip(self.strands, moves, strict=True):
            strand.extend([move.token])

    def _follow(self, parents: list[int]) -> None:
        """Make the strands those of the moves: a fork where several go on from one."""
        for number in set(range(len(self.strands))) - set(parents):
            self.strands[number].close()
        following: list[Strand] = []
        used: set[int] = set()
        for parent in parents:
            strand = self.strands[parent]
            if parent in used:
                strand, copies = strand.fork()
                self._copy_blocks(copies)
            used.add(parent)
            following.append(strand)
        self.strands = following

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self.channel.fail(error)
