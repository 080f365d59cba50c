"""DraftHead: a layer that says the token after the next one, beside the model it guesses for.

In: tokens, each with the hidden state of the token before it. Out: what the layer says after the
last one, and the hidden state with which it continues from its own guess. It runs where the model
does, on the CPU or a GPU (head_program.py). It has a KV cache of its own, in which texts find what
others with the same beginning have left. The layer may be the model's (mtp_head.py) or that of a
draft (eagle_head.py).
"""

from collections.abc import Hashable, Sequence

import numpy as np

from ingot.arrays import HiddenRows, Ints
from ingot.engine.model.head_program import FEW, CpuHeadProgram, HeadProgram, NextToken
from ingot.engine.model.joined_rows import HeadInputs
from ingot.engine.model.loaded_model import LoadedModel
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.kvcache import CachedSequence, KvCache, SequenceBlocks


class DraftHead:
    """A layer with a cache of its own, beside a model. One thread at a time."""

    def __init__(
        self,
        model: LoadedModel,
        graph: ComputationGraph,
        weights: HasTensors,
        inputs: HeadInputs,
        hidden: o.Value,
        *,
        token_map: Ints | None = None,
        lent: frozenset[str] | None = None,
    ) -> None:
        """`hidden` is the value of the graph with which the layer continues.

        `token_map`: the model's number of each token that the layer can guess. `lent` names the
        tensors that are the model's; None: all are of its file.
        """
        layout = KvLayout.of(graph.kv_layers, model.layout.type)
        blocks = max(model.pool.sizes)
        self._token_map = token_map
        self._program: HeadProgram
        if model.on_gpu:
            from ingot.engine.model.gpu_head import GpuHeadProgram  # noqa: PLC0415 (PyTorch)

            self._program = GpuHeadProgram(
                model,
                graph,
                weights,
                layout,
                inputs,
                blocks=blocks,
                hidden=hidden,
                token_map=token_map,
                lent=lent,
            )
        else:
            self._program = CpuHeadProgram(
                model,
                graph,
                weights,
                layout,
                inputs,
                blocks=blocks,
                hidden=hidden,
                token_map=token_map,
            )
        self.cache = KvCache(layout, blocks)

    def open(self, ids: Ints, variant: Hashable = ()) -> CachedSequence:
        """A sequence that begins with what the cache holds of these tokens, except the last one."""
        sequence = self.cache.open(ids, 0, variant=variant)
        for copy in self.cache.reuse_part(sequence, ids, 0):
            self._program.copy_block(copy.group, copy.source, copy.target)
        return sequence

    def read(self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows) -> None:
        """Run tokens, each with the hidden state [tokens, width] of the token before it."""
        size = self._program.max_tokens
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            self._program.read(sequence, ids[part], hidden[part])
        self._check()

    def next_token(self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows) -> NextToken:
        """The same, and what the head says after the last of them."""
        self.read(sequence, ids[:-FEW], hidden[:-FEW])
        said = self._program.next_token(sequence, ids[-FEW:], hidden[-FEW:])
        self._check()
        return said._replace(token=self._of_model([said.token])[0])

    def guess(
        self, sequence: SequenceBlocks, ids: Ints, hidden: HiddenRows, most: int
    ) -> list[int]:
        """Up to `most` tokens that the head says after these; fewer if its cache is full.

        `CacheFullError` if there is no room for the first.
        """
        self.read(sequence, ids[:-FEW], hidden[:-FEW])
        said = self._program.guess(sequence, ids[-FEW:], hidden[-FEW:], most)
        self._check()
        return self._of_model(said)

    def joined(self, rows: Sequence[HiddenRows]) -> HiddenRows:
        """A copy of some hidden states, below each other."""
        return self._program.joined(rows)

    def empty(self, count: int) -> HiddenRows:
        """So many hidden states of zeros."""
        return self._program.empty(count)

    def _of_model(self, guessed: Sequence[int]) -> list[int]:
        """The model's numbers of tokens that the head guessed."""
        if self._token_map is None:
            return list(guessed)
        return [int(token) for token in self._token_map[np.array(guessed, np.int32)]]

    def _check(self) -> None:
        """Raise an error if what was just computed may come from changed weights."""
