"""ChunkRunner: chunks of a text through a model on the CPU, each from an empty cache.

In: an open file and a graph of it, and which values are to be seen. Out: the rows that each step
computes. For whoever measures a model, for example to quantize it; it has no part in generation.
"""

from collections.abc import Collection, Iterator

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.backends.precision import Precision
from ingot.engine.model.loaded_model import build_batch
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout, block_count
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockPool, SequenceBlocks

STATES = 2  # of a recurrent model: the one before a step, and the one after it


class ChunkRunner:
    """A model with a cache for one chunk."""

    def __init__(
        self,
        graph: ComputationGraph,
        file: GgufLoader,
        *,
        chunk: int,
        step: int,
        threads: int,
        keep: Collection[str] = (),
    ) -> None:
        """Chunks have at most `chunk` tokens, of which at most `step` run at once."""
        if graph.encoder is not None:
            raise ModelError(
                f"{file.path} is an encoder-decoder, which is not measured on a text: name a "
                "quantization instead of a size"
            )
        layout = KvLayout.of(graph.kv_layers, KvType.F32, graph.states)
        blocks, states = block_count(chunk) + 1, STATES if layout.recurrent else 0
        self._file = file
        self._backend = CpuBackend(
            graph,
            file,
            layout,
            blocks=blocks,
            states=states,
            context=chunk,
            threads=threads,
            precision=Precision.EXACT,
            max_tokens=step if graph.causal else chunk,
            keep=keep,
        )
        self._pool = BlockPool(layout, blocks, states)

    def steps(self, chunk: Ints, *, every: int = 1) -> Iterator[tuple[slice, Floats]]:
        """Run a chunk step by step: the tokens of each, and the rows of the wanted ones.

        Those are the last of each `every` tokens.
        """
        for tokens, batch in chunk_batches(self._pool, chunk, self._backend.max_tokens, every):
            rows = self._backend.forward(batch)
            if self._file.is_mapped:
                self._file.check()
            yield tokens, rows

    def kept(self, name: str, width: int, tokens: int) -> Floats:
        """A value that was to be kept, after a step of so many tokens: [tokens, width]."""
        rows = np.empty((tokens, width), np.float32)
        self._backend.kept(name, tokens, rows)
        return rows


def chunk_batches(
    pool: BlockPool, chunk: Ints, step: int, every: int
) -> Iterator[tuple[slice, Batch]]:
    """A chunk in batches of at most `step` tokens; wanted are the last of each `every` tokens."""
    sequence = SequenceBlocks(pool)
    try:
        for start in range(0, len(chunk), step):
            tokens = chunk[start : start + step]
            sequence.grow(len(tokens))
            counts = np.array([len(tokens)], np.int32)
            outputs = np.arange(min(every, len(tokens)) - 1, len(tokens), every, dtype=np.int32)
            batch = build_batch([sequence], tokens, counts, outputs, ExecutionPhase.PROMPT)
            yield slice(start, start + len(tokens)), batch
            sequence.release_passed()
    finally:
        sequence.close()
