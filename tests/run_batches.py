"""Runs batches of several sequences on a backend, as an engine does.

A graph and its open file come in. `step` takes the next tokens of any of the sequences and
gives back the logits of every one of them; blocks of the cache come and go as they do in the
product.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.backends.cpu.seats import Seat
from ingot.backends.precision import Precision
from ingot.engine.model.loaded_model import batch_adapters
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockPool, SequenceBlocks

PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION
Logits = NDArray[np.float32]


class Runner:
    """A backend, its cache and the sequences in it, by name."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        *,
        kv_type: KvType = KvType.F32,
        threads: int = 1,
        precision: Precision = Precision.EXACT,
        max_tokens: int = 512,
        positions: int = 1024,
        sequences: int = 1,
        expanded: bool = False,
        seats: Sequence[Seat] = (),
    ) -> None:
        """`expanded`: the latents of prompts. `seats`: of the threads."""
        self.seats = seats
        self.precision = precision
        self.expanded = expanded
        self.absorbed: set[object] = set()  # sequences that are not, by name
        layout = KvLayout.of(graph.kv_layers, kv_type, graph.states)
        blocks = -(-positions // BLOCK_TOKENS) * sequences
        self.backend = self.make_backend(
            graph,
            model,
            layout,
            blocks=blocks,
            states=blocks,
            context=positions,
            threads=threads,
            max_tokens=max_tokens,
        )
        self.pool = BlockPool(layout, blocks, blocks)
        for memory in self.backend.pools:  # what a block held before must not matter
            self.spoil(memory)
        self.sequences: dict[object, SequenceBlocks] = {}

    def make_backend(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        layout: KvLayout,
        *,
        blocks: int,
        states: int,
        context: int,
        threads: int,
        max_tokens: int,
    ) -> Any:
        """The backend under test."""
        return CpuBackend(
            graph,
            model,
            layout,
            blocks=blocks,
            states=states,
            context=context,
            threads=threads,
            precision=self.precision,
            seats=self.seats,
            max_tokens=max_tokens,
        )

    def spoil(self, memory: Any) -> None:
        """Fill memory with random bytes."""
        memory[:] = np.random.default_rng(0).integers(0, 256, len(memory), np.uint8)

    def step(
        self,
        tokens: Mapping[object, Sequence[int]],
        phase: ExecutionPhase = PROMPT,
        types: Sequence[int] | None = None,
        adapters: Mapping[object, tuple[int, float] | None] | None = None,
        outputs: Sequence[int] | None = None,
        encoded: Mapping[object, int] | None = None,
    ) -> dict[object, Logits]:
        """Run the next tokens of some sequences together; logits of all tokens, by name.

        `adapters` are slots and scales, by name. `outputs`: one token of each sequence instead.
        `encoded`: how many tokens of each sequence an encoder read, by name.
        """
        held = [self.sequences.setdefault(name, SequenceBlocks(self.pool)) for name in tokens]
        counts = [len(ids) for ids in tokens.values()]
        starts = [sequence.length for sequence in held]
        for sequence, count in zip(held, counts, strict=True):
            sequence.grow(count)
        batch = Batch(
            ids=np.concatenate([np.asarray(ids, np.int32) for ids in tokens.values()]),
            positions=np.concatenate(
                [np.arange(s, s + c, dtype=np.int32) for s, c in zip(starts, counts, strict=True)]
            ),
            counts=np.array(counts, np.int32),
            tables=[sequence.tables for sequence in held],
            outputs=np.arange(sum(counts), dtype=np.int32)
            if outputs is None
            else np.asarray(outputs, np.int32),
            phase=phase,
            types=None if types is None else np.asarray(types, np.int32),
            encoded=None if encoded is None else np.array([encoded[n] for n in tokens], np.int32),
            expanded=np.array([name not in self.absorbed for name in tokens], np.int32)
            if self.expanded and phase is PROMPT
            else None,
            **batch_adapters([(adapters or {}).get(name) for name in tokens]),
        )
        logits = self.backend.forward(batch)
        for sequence in held:
            sequence.release_passed()
        if outputs is not None:
            counts = [1] * len(tokens)
        return dict(zip(tokens, np.split(logits, np.cumsum(counts)[:-1]), strict=True))

    def run(
        self,
        ids: Sequence[int],
        chunks: Sequence[int] = (),
        generated: int = 0,
        adapter: tuple[int, float] | None = None,
    ) -> Logits:
        """Logits of every token of one sequence, in a fresh place of the cache.

        The last `generated` tokens run one by one as a generation's, those before them as a
        prompt in pieces of the given lengths (what is left over is one more piece).
        """
        prompt = len(ids) - generated
        ends = [*np.cumsum(chunks).tolist(), prompt]
        rows, start, uses = [], 0, {"run": adapter}
        for end in ends:
            if start < min(end, prompt):
                piece = {"run": ids[start : min(end, prompt)]}
                rows.append(self.step(piece, adapters=uses)["run"])
                start = end
        for at in range(prompt, len(ids)):
            rows.append(self.step({"run": ids[at : at + 1]}, GENERATION, adapters=uses)["run"])
        self.end("run")
        return np.concatenate(rows)

    def end(self, name: object) -> None:
        """Give back what a sequence holds."""
        self.sequences.pop(name).close()


@contextmanager
def using_isa(name: str) -> Iterator[None]:
    """Run on an instruction set, and put back the one that was in use; a failure names it."""
    before = _native.active_isa()
    _native.set_isa(name)
    try:
        yield
    except AssertionError as error:
        error.add_note(f"on {name}")
        raise
    finally:
        _native.set_isa(before)
