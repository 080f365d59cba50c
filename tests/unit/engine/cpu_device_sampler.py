"""A device sampler whose device is the CPU, with the arithmetic of the sampler chains."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingot import LLM, _native
from ingot.backends.backend import Backend
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan, StepResult

Spoil = Callable[[int, NDArray[np.float32]], None]  # step, logits


@dataclass
class Waiting:
    """What a step found; somebody may be glad to know that it was waited for."""

    sampler: "CpuSampler"
    phase: ExecutionPhase
    outcome: StepResult

    def result(self) -> StepResult:
        self.sampler.running -= 1
        self.sampler.started.remove(self.phase)
        if self.sampler.waited:
            self.sampler.waited(self.phase)
        return self.outcome


class CpuSampler:
    """Samples what a GPU would, and counts."""

    prompt_rows = 1024

    def __init__(self, backend: Backend, most: int = 256, spoil: Spoil | None = None) -> None:
        self.most, self.spoil = most, spoil
        self.steps = self.sampled = self.ahead = self.running = 0
        self.prompts = 0  # steps of prompts, which `steps` does not count
        self.started: list[ExecutionPhase] = []  # and not waited for
        self.waited: Callable[[ExecutionPhase], None] | None = None
        self._backend = backend
        self._tokens = np.full(2 * self.prompt_rows, -9, np.int32)

    @classmethod
    def of(cls, llm: LLM, most: int = 256, spoil: Spoil | None = None) -> "CpuSampler":
        """Let a model have one."""
        made = cls(llm.engine.model._running, most, spoil)
        llm.engine.model.device_sampler = made
        return made

    def accepts(self, plan: SamplingPlan) -> bool:
        return plan.count <= self.most

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Waiting:
        assert len(batch.outputs) == len(plans)
        self.running += 1
        self.started.append(batch.phase)
        assert self.started.count(ExecutionPhase.PROMPT) <= 1, "there is one buffer"
        assert len(self.started) <= 3, "as many as there are buffers for"
        ahead = batch.ids < 0
        self.ahead += bool(ahead.any())
        ids = batch.ids.copy()
        ids[ahead] = np.maximum(self._tokens[-1 - ids[ahead]], 0)
        logits = self._backend.forward(replace(batch, ids=ids))
        if self.spoil:
            self.spoil(self.steps, logits)
        self.steps += batch.phase is ExecutionPhase.GENERATION
        self.prompts += batch.phase is ExecutionPhase.PROMPT
        sampled = np.array(
            [-9 if c is None else _sample(c, row) for c, row in zip(plans, logits, strict=True)],
            np.int32,
        )
        first = self.prompt_rows if batch.phase is ExecutionPhase.PROMPT else 0
        self._tokens[first : first + len(sampled)] = sampled
        self.sampled += sum(plan is not None for plan in plans)
        kept = [row for row, plan in enumerate(plans) if plan is None]
        return Waiting(self, batch.phase, StepResult(sampled, logits[kept]))


def _sample(plan: SamplingPlan, row: NDArray[np.float32]) -> int:
    row = row.copy()
    if plan.edits:
        ids, repeat = plan.edits.ids, np.float32(plan.edits.repeat)
        values = row[ids]
        scaled = np.where(values <= 0, values * repeat, values / repeat)
        row[ids] = scaled - plan.edits.lowered
    token = np.empty(1, np.int32)
    numbers = (plan.share, plan.distance, plan.temperature, plan.uniform)
    _native.sample_rows(
        row[np.newaxis],
        np.zeros(1, np.int32),
        np.array([min(plan.count, len(row))], np.int32),
        np.array([plan.least], np.int32),
        np.array([numbers]),
        token,
        1,
    )
    return int(token[0])
