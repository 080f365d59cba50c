"""BeamTask: beam search. Each beam is a sequence; a beam that continues in two ways is forked."""

from collections.abc import Callable, Sequence

import numpy as np

from ingot.arrays import Ints, Logits
from ingot.engine.adapters import AdapterUse
from ingot.engine.channel import Channel
from ingot.engine.sequence import TokenSequence, begin_text
from ingot.engine.task import Outcome, Task
from ingot.kvcache import BlockCopy
from ingot.sampling import BeamSearch


class BeamTask(Task):
    """Runs a beam search to its end, or to the end of the context."""

    def __init__(
        self,
        tokens: Ints,
        search: BeamSearch,
        context: int,
        threads: int,
        copy_blocks: Callable[[Sequence[BlockCopy]], None],
        start_token: int | None,
        adapter: AdapterUse | None = None,
    ) -> None:
        self.channel: Channel[bool] = Channel()
        self.sequences = [begin_text(tokens, start_token, adapter=adapter)]
        self._search = search
        self._context = context
        self._threads = threads
        self._copy_blocks = copy_blocks
        self._rows: dict[int, Logits] = {}  # by sequence: they may come in several steps

    def receive(self, outcome: Outcome) -> None:
        """Continue every beam when all of them have run."""
        for rows in outcome.rows:
            self._rows[id(rows.sequence)] = rows.logits
        if self.is_ready:
            self._advance()

    def _advance(self) -> None:
        rows = np.concatenate([self._rows[id(sequence)] for sequence in self.sequences])
        self._rows.clear()
        moves = self._search.step(rows, self._threads)
        if self._search.done or len(self.sequences[0]) == self._context:
            self.channel.finish(True)
            return
        self._follow([move.parent for move in moves])
        for sequence, move in zip(self.sequences, moves, strict=True):
            sequence.extend([move.token])

    def _follow(self, parents: list[int]) -> None:
        """Replace the sequences by those that continue the parents; fork one that has several."""
        for number in set(range(len(self.sequences))) - set(parents):
            self.sequences[number].close()
        following: list[TokenSequence] = []
        used: set[int] = set()
        for parent in parents:
            sequence = self.sequences[parent]
            if parent in used:
                sequence, copies = sequence.fork()
                self._copy_blocks(copies)
            used.add(parent)
            following.append(sequence)
        self.sequences = following
