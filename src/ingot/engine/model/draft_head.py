"""DraftHead: a layer that says the token after the next one, ready to run on the CPU.

In: tokens, each with the hidden state of the token before it. Out: what the layer says after the
last one, and the hidden state with which it continues from its own guess. It has a KV cache of its
own, in which texts find what others with the same beginning have left. The layer may be the model's
(mtp_head.py) or that of a draft (eagle_head.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from ingot.arrays import Floats, Ints, Logits
from ingot.backends.batch import ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.engine.model.loaded_model import LoadedModel, build_batch
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.kvcache import CachedSequence, KvCache, SequenceBlocks

FEW = 8  # tokens that run as generated ones


class NextToken(NamedTuple):
    """What a head says after a token."""

    token: int  # the likeliest one, as the model counts tokens
    logits: Logits  # of the tokens that the head can guess
    hidden: Floats  # [1, width]


class DraftHead(ABC):
    """A layer with a cache of its own, beside a model. One thread at a time."""

    def __init__(
        self, model: LoadedModel, graph: ComputationGraph, weights: HasTensors, hidden: o.Value
    ) -> None:
        """`hidden` is the value of the graph with which the layer continues."""
        layout = KvLayout.of(graph.kv_layers, model.layout.type)
        blocks = max(model.pool.sizes)
        self._hidden = hidden
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
        self.cache = KvCache(layout, blocks)

    @property
    def width(self) -> int:
        """Elements of a hidden state."""
        return self._hidden.width

    def open(self, ids: Ints, variant: Hashable = ()) -> CachedSequence:
        """A sequence that begins with what the cache holds of these tokens, except the last one."""
        sequence = self.cache.open(ids, 0, variant=variant)
        for copy in self.cache.reuse_part(sequence, ids, 0):
            self._backend.copy_block(copy.group, copy.source, copy.target)
        return sequence

    def read(self, sequence: SequenceBlocks, ids: Ints, hidden: Floats) -> None:
        """Run tokens, each with the hidden state [tokens, width] of the token before it."""
        size = self._backend.max_tokens
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            self._run(sequence, ids[part], hidden[part], np.empty(0, np.int32))

    def next_token(self, sequence: SequenceBlocks, ids: Ints, hidden: Floats) -> NextToken:
        """The same, and what the head says after the last of them."""
        self.read(sequence, ids[:-FEW], hidden[:-FEW])
        ids, hidden = ids[-FEW:], hidden[-FEW:]
        logits = self._run(sequence, ids, hidden, np.array([len(ids) - 1], np.int32))
        after = np.empty((1, self._hidden.width), np.float32)
        self._backend.kept(self._hidden.name, len(ids), after)
        return NextToken(self._token(int(logits[0].argmax())), logits[0], after)

    @abstractmethod
    def _rows(self, ids: Ints, hidden: Floats) -> Floats:
        """What the graph takes of tokens and hidden states."""

    def _token(self, guessed: int) -> int:
        """The model's number of a token that the head guessed."""
        return guessed

    def _run(self, sequence: SequenceBlocks, ids: Ints, hidden: Floats, outputs: Ints) -> Logits:
        sequence.grow(len(ids))
        counts = np.array([len(ids)], np.int32)
        phase = ExecutionPhase.GENERATION if len(ids) <= FEW else ExecutionPhase.PROMPT
        rows = self._rows(ids, hidden)
        batch = build_batch([sequence], ids, counts, outputs, phase, rows=rows)
        return self._backend.forward(batch)
