"""Run an Ingot model step by step, with the same methods as `peer.Peer`."""

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine import LoadedModel
from ingot.graph.kv_layout import whole_blocks
from ingot.kvcache import SequenceBlocks

_NONE = np.empty(0, np.int32)


class Stepper:
    """A model whose steps are made and timed one by one."""

    def __init__(
        self,
        model: Path,
        *,
        threads: int,
        context: int,
        sequences: int = 1,
        precision: str | None = None,
        device: str = "cpu",
        kv_type: str = "f16",
        weights: str = "auto",
    ) -> None:
        self._model = LoadedModel(
            model,
            threads=threads,
            precision=precision,
            context=context,
            cache_tokens=sequences * whole_blocks(context),
            device=device,
            sequences=sequences,
            kv_type=kv_type,
            weights=weights,
        )
        if self._model.repacking is not None:  # it would take a part of the first times
            self._model.repacking.wait()
        self._vocabulary = self._model.graph.vocabulary_size
        self._kept: list[SequenceBlocks] = []

    def prompt(self, tokens: int) -> float:
        """Seconds a prompt takes on an empty context."""
        self._drop()
        sequence = self._model.sequence()
        started = time.perf_counter()
        self._read(sequence, tokens, wanted=True)
        seconds = time.perf_counter() - started
        sequence.close()
        return seconds

    def generate(self, tokens: int, depth: int = 0, sequences: int = 1) -> float:
        """Seconds that so many steps take after `depth` tokens and what earlier calls added."""
        if len(self._kept) != sequences or any(s.length < depth for s in self._kept):
            self._drop()
            self._kept = [self._model.sequence() for _ in range(sequences)]
            for sequence in self._kept:
                self._read(sequence, depth, wanted=False)
        outputs = np.arange(sequences, dtype=np.int32)
        started = time.perf_counter()
        for step in range(tokens):
            ids = np.full(1, (step * 31 + 7) % self._vocabulary, np.int32)
            self._model.step(self._kept, [ids] * sequences, outputs, ExecutionPhase.GENERATION)
        return time.perf_counter() - started

    def generate_at(self, tokens: int, depth: int) -> float:
        """Seconds that so many steps take after `depth` tokens that did not run.

        The blocks of the cache hold zeros: how long a step takes does not depend on what is there.
        """
        self._drop()
        self._kept = [self._model.sequence()]
        self._fill(self._kept[0], depth)
        return self.generate(tokens, depth)

    def prompt_at(self, tokens: int, depth: int) -> float:
        """Seconds that a prompt takes after `depth` tokens that did not run either."""
        self._drop()
        self._kept = [self._model.sequence()]
        self._fill(self._kept[0], depth)
        started = time.perf_counter()
        self._read(self._kept[0], tokens, wanted=True)
        return time.perf_counter() - started

    @property
    def planned_bytes(self) -> int:
        """What the cache takes, by its plan."""
        pool = self._model.pool
        sizes = zip(pool.sizes, pool.layout.groups, strict=True)
        return sum(count * group.block_bytes for count, group in sizes)

    @property
    def planned_device_bytes(self) -> int:
        """What weights, steps and cache take on a GPU, by the plan."""
        from ingot.engine.model.gpu_fit import make_planner  # noqa: PLC0415 (imports PyTorch)

        model = self._model
        planner = make_planner(
            model.graph,
            model.file,
            model.layout.type,
            model.gpu_program.device,
            model.context,
            model.decode_sequences,
        )
        needs = planner.needs(planner.layers)
        return needs.weights + max(needs.packing, needs.steps + self.planned_bytes)

    def logits(self, ids: list[int]) -> NDArray[np.float32]:
        """Logits of every position, one step per token."""
        sequence, first = self._model.sequence(), np.zeros(1, np.int32)
        rows = [
            self._model.step(
                [sequence], [np.array([token], np.int32)], first, ExecutionPhase.GENERATION
            )
            for token in ids
        ]
        sequence.close()
        return np.concatenate(rows)

    def close(self) -> None:
        """Close the model."""
        self._drop()
        self._model.close()

    def _read(self, sequence: SequenceBlocks, tokens: int, *, wanted: bool) -> None:
        ids = ((np.arange(tokens) * 7919 + 13) % self._vocabulary).astype(np.int32)
        for start in range(0, tokens, self._model.step_tokens):
            part = ids[start : start + self._model.step_tokens]
            last = wanted and start + len(part) == tokens
            outputs = np.array([len(part) - 1], np.int32) if last else _NONE
            self._model.step([sequence], [part], outputs, ExecutionPhase.PROMPT)

    def _fill(self, sequence: SequenceBlocks, tokens: int) -> None:
        """Put zeros into the cache for so many tokens."""
        sequence.grow(tokens)
        groups = self._model.pool.layout.groups
        for group, table in enumerate(sequence.tables):
            zeros = np.zeros(groups[group].block_bytes, np.uint8)
            for index in table[table >= 0].tolist():
                self._model.write_block(group, index, zeros)

    def _drop(self) -> None:
        for sequence in self._kept:
            sequence.close()
        self._kept = []
