"""Steps that sample their tokens, and steps that take theirs from the one before."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from gpu.gpu_runner import GpuRunner
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import NOT_FINITE, SamplingPlan, Started, StepResult
from ingot.graph.kv_type import KvType
from ingot.kvcache import SequenceBlocks
from ops.attention import AttentionCase

PROMPTS = {"a": [1, 5, 9], "b": [2, 2], "c": [7]}
GREEDY = SamplingPlan(1, 2.0, np.inf, 1, 1.0, 0.0)


def sampled(uniform: float) -> SamplingPlan:
    return SamplingPlan(8, 0.9, 5.0, 1, 1.5, uniform)


class Steps(GpuRunner):
    """Generates by hand."""

    def read(self) -> list[int]:
        """The prompts: the likeliest token after each."""
        return [int(rows[-1].argmax()) for rows in self.step(PROMPTS).values()]

    def start(
        self,
        ids: Sequence[int],
        plans: Sequence[SamplingPlan | None],
        names: Sequence[str] = tuple(PROMPTS),
    ) -> Started:
        held = [self.sequences[name] for name in names]
        for sequence in held:
            sequence.grow(1)
        started: Started = self.backend.start(
            Batch(
                ids=np.array(ids, np.int32),
                positions=np.array([sequence.length - 1 for sequence in held], np.int32),
                counts=np.ones(len(held), np.int32),
                tables=[sequence.tables for sequence in held],
                outputs=np.arange(len(held), dtype=np.int32),
                phase=ExecutionPhase.GENERATION,
            ),
            plans,
        )
        return started

    def start_prompts(self, names: str, plans: Sequence[SamplingPlan | None]) -> Started:
        """A chunk with whole prompts, whose last rows are wanted."""
        counts = np.array([len(PROMPTS[name]) for name in names], np.int32)
        for name, count in zip(names, counts, strict=True):
            self.sequences[name] = SequenceBlocks(self.pool)
            self.sequences[name].grow(int(count))
        started: Started = self.backend.start(
            Batch(
                ids=np.concatenate([np.array(PROMPTS[name], np.int32) for name in names]),
                positions=np.concatenate([np.arange(count, dtype=np.int32) for count in counts]),
                counts=counts,
                tables=[self.sequences[name].tables for name in names],
                outputs=np.cumsum(counts, dtype=np.int32) - 1,
                phase=ExecutionPhase.PROMPT,
            ),
            plans,
        )
        return started


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    """Of an embedding and an attention, which writes 32 different tokens."""
    small, logits = AttentionCase(tokens=32, heads=2, size=16).build()
    graph, model = small.build(logits, tmp_path / "small.gguf")
    with model:
        yield Steps(graph, model, kv_type=KvType.F16, positions=64, sequences=3)


def test_steps_ahead(steps: Steps) -> None:
    """The same tokens whether steps wait for each other or not."""
    plans = [[sampled(0.1), GREEDY, sampled(0.7)], [sampled(0.9), GREEDY, sampled(0.3)]]
    first = steps.read()
    expected: list[list[int]] = []
    for each in plans:
        ids = expected[-1] if expected else first
        expected.append(steps.start(ids, each).result().tokens.tolist())
    for name in PROMPTS:
        steps.end(name)
    assert steps.read() == first
    started = [steps.start(first, plans[0]), steps.start([-1, -2, -3], plans[1])]
    assert [each.result().tokens.tolist() for each in started] == expected
    assert len({token for tokens in expected for token in tokens}) > 1


def test_a_step_ahead_after_a_decode_step_and_a_prompt_chunk(steps: Steps) -> None:
    """It takes tokens of both; the chunk's are not in the place of the decode step's."""
    plans = [sampled(0.4), GREEDY, sampled(0.6)]
    found = []
    for ahead in (False, True):
        first = steps.start_prompts("a", [GREEDY]).result().tokens.tolist()
        parts = [steps.start(first, [sampled(0.9)], names="a")]
        parts.append(steps.start_prompts("bc", [sampled(0.2), sampled(0.8)]))
        row = steps.backend.prompt_rows
        ids = [-1, -1 - row, -2 - row]
        if not ahead:
            ids = [token for part in parts for token in part.result().tokens.tolist()]
        parts.append(steps.start(ids, plans))
        found.append([part.result().tokens.tolist() for part in parts])
        for name in PROMPTS:
            steps.end(name)
    assert found[0] == found[1]
    assert len({token for tokens in found[0] for token in tokens}) > 3


def test_the_device_tells_what_a_step_took(steps: Steps) -> None:
    """Not what the host did before and after it."""
    first = steps.read()
    begun = perf_counter()
    found: StepResult = steps.start(first, [GREEDY] * 3).result()
    assert found.seconds is not None
    assert 0 < found.seconds < perf_counter() - begun


def test_rows_for_the_host(steps: Steps) -> None:
    """Only their logits come back, the same as those of a step that samples nothing."""
    first = steps.read()
    tokens = dict(zip(PROMPTS, [[each] for each in first], strict=True))
    rows = steps.step(tokens, ExecutionPhase.GENERATION)
    for name in PROMPTS:
        steps.end(name)
    steps.read()
    found: StepResult = steps.start(first, [None, GREEDY, None]).result()
    assert found.tokens[1] == rows["b"][0].argmax()
    np.testing.assert_array_equal(found.logits, np.concatenate([rows["a"], rows["c"]]))


def test_a_sampler_that_failed_harms_nobody(steps: Steps) -> None:
    """A step whose row has no token before it runs, and the other rows are right."""
    first = steps.read()
    one = steps.start(first, [GREEDY] * 3).result().tokens
    steps.backend._decode._work.tokens[0] = NOT_FINITE
    again = steps.start([-1, -2, -3], [GREEDY] * 3).result().tokens
    for name in PROMPTS:
        steps.end(name)
    steps.read()
    steps.start(first, [GREEDY] * 3).result()
    expected = steps.start([0, *one[1:].tolist()], [GREEDY] * 3).result().tokens
    np.testing.assert_array_equal(again, expected)
