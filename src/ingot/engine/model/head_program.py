"""HeadProgram: what runs the layer of a head, and where hidden states are meanwhile.

In: tokens, and rows of hidden states as the same device computed them. Out: what the layer says, in
its own vocabulary. `CpuHeadProgram` runs it on the CPU; that of a GPU is in gpu_head.py.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ingot.arrays import Floats, HiddenRows, Ints, Logits
from ingot.backends.batch import ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.model.joined_rows import HeadInputs, JoinedRows
from ingot.engine.model.loaded_model import LoadedModel, build_batch
from ingot.errors import CacheFullError
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.kvcache import SequenceBlocks

FEW = 8  # tokens that run as generated ones
_NONE = np.empty(0, np.int32)


class NextToken(NamedTuple):
    """What a head says after a token."""

    token: int  # the likeliest one
    logits: HiddenRows  # of the tokens that the head can guess, until it runs again
    hidden: HiddenRows  # [1, width]


class HeadProgram(Protocol):
    """A layer that is ready to run, with a cache. Sequences have not grown for the tokens yet."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of one step."""

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""

    def read(self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows) -> None:
        """Run tokens of one step, each with the hidden state of the token before it."""

    def next_token(self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows) -> NextToken:
        """The same, and what the layer says after the last of them."""

    def guess(
        self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows, most: int
    ) -> list[int]:
        """Up to `most` tokens after these, one after the other; fewer if the cache is full.

        `CacheFullError` if there is no room for the first.
        """

    def joined(self, rows: Sequence[HiddenRows]) -> HiddenRows:
        """A copy of some hidden states, below each other."""

    def empty(self, count: int) -> HiddenRows:
        """So many hidden states of zeros."""


class CpuHeadProgram:
    """The layer on the CPU."""

    def __init__(
        self,
        model: LoadedModel,
        graph: ComputationGraph,
        weights: HasTensors,
        layout: KvLayout,
        inputs: HeadInputs,
        *,
        blocks: int,
        hidden: o.Value,
        token_map: Ints | None,
    ) -> None:
        """`hidden` is the value of the graph with which the layer continues."""
        self._hidden, self._token_map = hidden, token_map
        self._inputs = JoinedRows(inputs, weights)
        self._backend = CpuBackend(
            graph,
            weights,
            layout,
            blocks=blocks,
            context=model.context,
            threads=model.threads,
            precision=model.precision,
            max_tokens=model.step_tokens,
            keep=[hidden.name],
        )

    @property
    def max_tokens(self) -> int:
        """The most tokens of one step."""
        return self._backend.max_tokens

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        self._backend.copy_block(group, source, target)

    def read(self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows) -> None:
        """Run tokens."""
        self._run(sequence, ids, hidden, _NONE)

    def next_token(self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows) -> NextToken:
        """Run tokens and choose the likeliest one after them."""
        logits = self._run(sequence, ids, hidden, np.array([len(ids) - 1], np.int32))
        after = np.empty((1, self._hidden.width), np.float32)
        self._backend.kept(self._hidden.name, len(ids), after)
        return NextToken(int(logits[0].argmax()), logits[0], after)

    def guess(
        self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows, most: int
    ) -> list[int]:
        """One token after the other."""
        said = self.next_token(sequence, ids, hidden)
        guess = [said.token]
        try:
            while len(guess) < most:
                token = guess[-1] if self._token_map is None else self._token_map[guess[-1]]
                said = self.next_token(sequence, np.array([token], np.int32), said.hidden)
                guess.append(said.token)
        except CacheFullError:  # other texts fill the layer's cache
            pass
        return guess

    def joined(self, rows: Sequence[HiddenRows]) -> HiddenRows:
        """A copy of some hidden states, below each other."""
        return np.concatenate(rows)

    def empty(self, count: int) -> Floats:
        """So many hidden states of zeros."""
        return np.zeros((count, self._hidden.width), np.float32)

    def _run(self, sequence: SequenceBlocks, ids: Ints, hidden: Floats, outputs: Ints) -> Logits:
        sequence.grow(len(ids))
        counts = np.array([len(ids)], np.int32)
        phase = ExecutionPhase.GENERATION if len(ids) <= FEW else ExecutionPhase.PROMPT
        rows = self._inputs.of(ids, hidden)
        batch = build_batch([sequence], ids, counts, outputs, phase, rows=rows)
        return self._backend.forward(batch)
