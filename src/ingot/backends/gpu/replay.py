"""Decode steps, captured for each bucket of sequences when a model is opened, and replayed.

A replay sends the numbers of a batch and starts every kernel of a step: no Python between them, no
allocation. A batch is filled up to the next bucket with tokens at position -1, which touch nothing.

Tokens are sampled on the device for rows that have a plan; these come back, and the logits of the
other rows. A step need not be waited for before the next is started, which may take its tokens
from it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan, StepResult
from ingot.backends.gpu.adapters import AdapterMemory
from ingot.backends.gpu.buckets import decode_buckets, next_bucket
from ingot.backends.gpu.device import Device, Moment
from ingot.backends.gpu.graphs import FIRST_PIECE, Graphs, Replay
from ingot.backends.gpu.inputs import TWINS, InputBuffer, SingleTokens
from ingot.backends.gpu.lowering import Program, Step
from ingot.backends.gpu.sampler import SamplerWork
from ingot.backends.gpu.variants import Start


@dataclass(frozen=True, slots=True)
class _Captured:
    tokens: SingleTokens
    starts: list[Replay]  # the first piece, for each of the twins
    pieces: list[Replay]
    sample: Replay


@dataclass(frozen=True, slots=True)
class Replayed:
    """A step that the device runs, and what it will leave on the host."""

    tokens: torch.Tensor
    logits: torch.Tensor
    begun: Moment
    done: Moment

    @classmethod
    def of(
        cls,
        device: Device,
        begun: Moment,
        sampled: torch.Tensor,
        logits: torch.Tensor,
        plans: Sequence[SamplingPlan | None],
    ) -> "Replayed":
        """Have the tokens of rows with plans sent, and the logits of the others."""
        # New pinned memory: PyTorch keeps what is given back for the next step.
        pinned, (rows, vocabulary) = logits.is_cuda, logits.shape
        wanted = [row for row, plan in enumerate(plans) if plan is None]
        tokens = torch.empty(rows, dtype=torch.int32, pin_memory=pinned and rows > 0)
        kept = torch.empty((len(wanted), vocabulary), pin_memory=pinned and len(wanted) > 0)
        if len(wanted) < rows:
            tokens.copy_(sampled[:rows], non_blocking=True)
            for place, row in enumerate(wanted):
                kept[place].copy_(logits[row], non_blocking=True)
        else:
            kept.copy_(logits, non_blocking=True)
        return cls(tokens, kept, begun, device.moment())

    def result(self) -> StepResult:
        """Wait for it."""
        self.done.wait()
        seconds = self.done.seconds_since(self.begun)
        return StepResult(self.tokens.numpy(), self.logits.numpy(), seconds)


class DecodeReplay:
    """The decode steps of one backend."""

    def __init__(
        self,
        device: Device,
        program: Program,
        inputs: InputBuffer,
        work: SamplerWork,
        graphs: Graphs,
        *,
        sequences: int,
        adapters: AdapterMemory | None = None,
    ) -> None:
        """Of up to so many sequences, which may use `adapters`."""
        self._device = device
        self._adapters = adapters
        self._program = program
        self._work = work
        self._graphs = graphs
        self._buckets = decode_buckets(sequences)
        self._tokens = {size: SingleTokens(inputs, device.torch, size) for size in self._buckets}
        self._captured: dict[int, _Captured] = {}
        self._turn = 0

    @property
    def sizes(self) -> int:
        """How many sizes of steps there are."""
        return len(self._buckets)

    def takes(self, batch: Batch) -> bool:
        """Whether a batch is one new token of each of some sequences, all logits wanted."""
        tokens = len(batch.ids)
        return (
            batch.phase is ExecutionPhase.GENERATION
            and 0 < tokens <= max(self._buckets, default=0)
            and len(batch.counts) == tokens == len(batch.outputs)
        )

    def runs(self, start: Start) -> Iterator[Callable[[], None]]:
        """A run of every bucket, without any token, whose kernels are launched by `start`."""
        for size in self._buckets:
            yield partial(self._run_empty, self._tokens[size], self._step(size, start))

    def launches(self, start: Start) -> Iterator[Callable[[], None]]:
        """The same without a batch, for a `start` that launches nothing."""
        for size in self._buckets:
            yield partial(self._program.run, self._step(size, start))
            yield partial(self._work.sample, self._tokens[size].plans, start)

    def capture(self, start: Start) -> Iterator[None]:
        """Capture every bucket; all kernels have run before."""
        capture = self._graphs.capture
        for size in self._buckets:
            tokens, step = self._tokens[size], self._step(size, start)
            self._captured[size] = _Captured(
                tokens,
                [capture(partial(self._run_first, tokens, step, twin)) for twin in range(TWINS)],
                self._graphs.pieces(self._program, step, FIRST_PIECE, len(self._program)),
                capture(partial(self._work.sample, tokens.plans, start)),
            )
            yield

    def _run_empty(self, tokens: SingleTokens, step: Step) -> None:
        tokens.clear()
        self._program.run(step)
        self._work.sample(tokens.plans, step.start)

    def _run_first(self, tokens: SingleTokens, step: Step, twin: int) -> None:
        tokens.send(twin)
        self._program.run(step, slice(0, FIRST_PIECE))

    def _step(self, size: int, start: Start) -> Step:
        return Step(
            self._tokens[size].inputs,
            ExecutionPhase.GENERATION,
            self._work.logits[:size],
            single=True,
            start=start,
            adapters=self._adapters,
        )

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Replayed:
        """Run a step; at most two at a time."""
        begun = self._device.moment()
        logits = self.launch(batch, plans)
        return Replayed.of(self._device, begun, self._work.tokens, logits, plans)

    def launch(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> torch.Tensor:
        """The same without waiting: logits on the device, until the next step."""
        rows = len(batch.ids)
        size = next_bucket(self._buckets, rows)
        assert size is not None, "the last bucket has room for all"
        captured = self._captured[size]
        self._turn = (self._turn + 1) % TWINS
        captured.tokens.fill(self._turn, batch, plans)
        captured.starts[self._turn]()
        for piece in captured.pieces:
            piece()
        if any(plans):
            captured.sample()
        return self._work.logits[:rows]
