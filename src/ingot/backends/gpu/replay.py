"""Steps of a generation, captured once for 1, 2, 4, ... sequences and replayed.

A replay sends the numbers of a batch and starts every kernel of a step: no Python between them, no
allocation. A step is captured in pieces, each longer than the one before: to start a piece takes
time for each of its kernels, and the device runs the first while the others are started. A batch is
filled up to the next captured size with tokens at position -1, which touch nothing.

Tokens are sampled on the device for rows that have a plan; these come back, and the logits of the
other rows. A step need not be waited for before the next is started, which may take its tokens
from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan, StepResult
from ingot.backends.gpu.device import CAPTURING, Device
from ingot.backends.gpu.inputs import TWINS, InputBuffer, SingleTokens
from ingot.backends.gpu.lowering import Program, Step
from ingot.backends.gpu.sampler import ROWS, SamplerWork

FIRST_PIECE = 8  # operations; the next pieces are twice as long as those before them


@dataclass(frozen=True, slots=True)
class _Captured:
    tokens: SingleTokens
    starts: list[Callable[[], None]]  # the first piece, for each of the twins
    pieces: list[Callable[[], None]]
    sample: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A step that the device runs, and what it will leave on the host."""

    tokens: torch.Tensor
    logits: torch.Tensor
    done: torch.cuda.Event | None

    def result(self) -> StepResult:
        """Wait for it."""
        if self.done:
            self.done.synchronize()
        return StepResult(self.tokens.numpy(), self.logits.numpy())


class Replay:
    """Captured steps of one backend."""

    def __init__(
        self,
        device: Device,
        program: Program,
        inputs: InputBuffer,
        work: SamplerWork,
    ) -> None:
        self._device = device
        self._program = program
        self._inputs = inputs
        self._work = work
        self._captured: dict[int, _Captured] = {}
        self._turn = 0

    @staticmethod
    def takes(batch: Batch) -> bool:
        """Whether a batch is one new token of each of some sequences, all logits wanted."""
        tokens = len(batch.ids)
        return (
            batch.phase is ExecutionPhase.GENERATION
            and 0 < tokens <= ROWS
            and len(batch.counts) == tokens == len(batch.outputs)
        )

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Replayed:
        """Run a step; at most two at a time."""
        rows = len(batch.ids)
        # The interpreter warns of what the rows hold that fill a batch up.
        size = rows if self._device.interpreted else int(triton.next_power_of_2(rows))
        if size not in self._captured:
            self._captured[size] = self._capture(batch, plans, size)
        captured = self._captured[size]
        self._turn = (self._turn + 1) % TWINS
        captured.tokens.fill(self._turn, batch, plans)
        captured.starts[self._turn]()
        for piece in captured.pieces:
            piece()
        if any(plans):
            captured.sample()
        return self._fetch(rows, [row for row, plan in enumerate(plans) if plan is None])

    def _fetch(self, rows: int, wanted: Sequence[int]) -> Replayed:
        """Have the tokens sent, and some rows of logits."""
        # New pinned memory: PyTorch keeps what is given back for the next step.
        pinned = not self._device.interpreted
        vocabulary = self._work.logits.shape[1]
        tokens = torch.empty(rows, dtype=torch.int32, pin_memory=pinned)
        logits = torch.empty((len(wanted), vocabulary), pin_memory=pinned and len(wanted) > 0)
        if len(wanted) < rows:
            tokens.copy_(self._work.tokens[:rows], non_blocking=True)
            for place, row in enumerate(wanted):
                logits[place].copy_(self._work.logits[row], non_blocking=True)
        else:
            logits.copy_(self._work.logits[:rows], non_blocking=True)
        if self._device.interpreted:
            return Replayed(tokens, logits, None)
        done = torch.cuda.Event()
        done.record()
        return Replayed(tokens, logits, done)

    def _capture(self, batch: Batch, plans: Sequence[SamplingPlan | None], size: int) -> _Captured:
        program, work = self._program, self._work
        tokens = SingleTokens(self._inputs, self._device.torch, size)
        logits = work.logits[:size]
        step = Step(tokens.inputs, ExecutionPhase.GENERATION, logits, single=True)

        def part(start: int, length: int, twin: int | None = None) -> Callable[[], None]:
            def run() -> None:
                if twin is not None:
                    tokens.send(twin)
                program.run(step, slice(start, start + length))

            return self._graph(run)

        def sample() -> None:
            work.sample(tokens.plans)

        if not self._device.interpreted:
            tokens.fill(0, batch, [None] * len(plans))
            tokens.send(0)
            program.run(step)  # compiles; and runs the step, which is then repeated
            sample()
            self._device.wait()
        starts = [part(0, FIRST_PIECE, twin) for twin in range(TWINS)]
        pieces = []
        start, length = FIRST_PIECE, 2 * FIRST_PIECE
        while start < len(program):
            pieces.append(part(start, length))
            start, length = start + length, 2 * length
        return _Captured(tokens, starts, pieces, self._graph(sample))

    def _graph(self, run: Callable[[], None]) -> Callable[[], None]:
        """What has the same effect; the interpreter has nothing to capture."""
        if self._device.interpreted:
            return run
        graph = torch.cuda.CUDAGraph()
        # Other threads may run, open or close models meanwhile.
        with CAPTURING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            run()
        replay: Callable[[], None] = graph.replay
        return replay
