"""A backend that chooses tokens "on the device": the CPU's, with the samplers' own arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingot import LLM, _native
from ingot.backends.backend import Backend
from ingot.backends.batch import Batch
from ingot.backends.choosing import Outcome, RowChoice

Spoil = Callable[[int, NDArray[np.float32]], None]  # step, logits


@dataclass
class Waiting:
    """What a step found; somebody may be glad to know that it was waited for."""

    chooser: "CpuChooser"
    outcome: Outcome

    def result(self) -> Outcome:
        self.chooser.running -= 1
        return self.outcome


class CpuChooser:
    """Chooses what a GPU would, and counts."""

    def __init__(self, backend: Backend, most: int = 256, spoil: Spoil | None = None) -> None:
        self.most, self.spoil = most, spoil
        self.steps = self.chosen = self.ahead = self.running = 0
        self._backend = backend
        self._tokens = np.empty(0, np.int32)

    @classmethod
    def of(cls, llm: LLM, most: int = 256, spoil: Spoil | None = None) -> "CpuChooser":
        """Let a model have one."""
        made = cls(llm.engine.model._running, most, spoil)
        llm.engine.model.chooser = made
        return made

    def accepts(self, choice: RowChoice) -> bool:
        return choice.count <= self.most

    def start(self, batch: Batch, choices: Sequence[RowChoice | None]) -> Waiting:
        assert len(batch.ids) == len(batch.counts) == len(batch.outputs) == len(choices)
        self.running += 1
        assert self.running <= 2, "as many as there are buffers for"
        ahead = batch.ids < 0
        self.ahead += bool(ahead.any())
        ids = batch.ids.copy()
        ids[ahead] = np.maximum(self._tokens[-1 - ids[ahead]], 0)
        logits = self._backend.forward(replace(batch, ids=ids))
        if self.spoil:
            self.spoil(self.steps, logits)
        self.steps += 1
        self._tokens = np.array(
            [-9 if c is None else _choose(c, row) for c, row in zip(choices, logits, strict=True)],
            np.int32,
        )
        self.chosen += sum(choice is not None for choice in choices)
        kept = [row for row, choice in enumerate(choices) if choice is None]
        return Waiting(self, Outcome(self._tokens.copy(), logits[kept]))


def _choose(choice: RowChoice, row: NDArray[np.float32]) -> int:
    row = row.copy()
    if choice.edits:
        ids, repeat = choice.edits.ids, np.float32(choice.edits.repeat)
        values = row[ids]
        scaled = np.where(values <= 0, values * repeat, values / repeat)
        row[ids] = scaled - choice.edits.lowered
    token = np.empty(1, np.int32)
    numbers = (choice.share, choice.distance, choice.temperature, choice.uniform)
    _native.choose_from_rows(
        row[np.newaxis],
        np.zeros(1, np.int32),
        np.array([min(choice.count, len(row))], np.int32),
        np.array([choice.least], np.int32),
        np.array([numbers]),
        token,
        1,
    )
    return int(token[0])
