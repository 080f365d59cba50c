"""Prompt chunks: captured for each bucket of tokens and replayed, or launched kernel by kernel.

A chunk has two parts: all layers for all tokens, up to the selection of the tokens whose logits are
wanted, and the rest for those only. Both are captured for some sizes when a model is opened, and so
is the sampling of wanted rows. A batch that no bucket takes (very many short prompts, very many
wanted rows, guesses) is launched without a capture; its kernels have been compiled, too. So is one
with adapters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan
from ingot.backends.gpu.adapters import AdapterBank, AdapterMemory
from ingot.backends.gpu.buckets import PromptBucket, next_bucket, prompt_buckets, wanted_buckets
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.graphs import Graphs, Replay
from ingot.backends.gpu.inputs import InputBuffer, query_tiles
from ingot.backends.gpu.linear import MAX_COLUMNS, SHORT_PROMPT
from ingot.backends.gpu.lowering import Program, Step
from ingot.backends.gpu.replay import Replayed
from ingot.backends.gpu.sampler import RowPlans, SamplerWork
from ingot.backends.gpu.variants import Start

PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION


class PromptReplay:
    """The steps of one backend that are not one token of each sequence."""

    def __init__(
        self,
        device: Device,
        program: Program,
        inputs: InputBuffer,
        work: SamplerWork,
        graphs: Graphs,
        bank: AdapterBank,
        *,
        tokens: int,
        sequences: int,
        query_tile: int,
        decodes: bool,
        reads: bool = True,
    ) -> None:
        """Of up to so many tokens and sequences; if texts are written, there are guesses, too.

        Not `reads`: another backend has the prompts, and there are guesses alone.
        """
        self._device, self._bank = device, bank
        self._program, self._inputs, self._work, self._graphs = program, inputs, work, graphs
        self._query_tile = query_tile
        # Without a selection every token has logits, and nothing can be captured for all of them.
        sizes = prompt_buckets(tokens) if reads and program.body < len(program) else []
        self._buckets = {size: PromptBucket.of(size, sequences, query_tile) for size in sizes}
        self._wanted = wanted_buckets(min(work.rows, tokens)) if reads else []
        self._reads = reads
        self._tokens, self._decodes = tokens, decodes
        self._body: dict[int, list[Replay]] = {}
        self._tail: dict[int, Replay] = {}
        sampled = self._wanted if decodes else ()
        self._plans = {rows: RowPlans(device.torch, rows) for rows in sampled}
        self._sample: dict[int, Replay] = {}

    @property
    def sizes(self) -> int:
        """How many sizes of steps there are."""
        return len(self._buckets) + len(self._wanted)

    def runs(self, start: Start) -> Iterator[Callable[[], None]]:
        """A run of every bucket, and of what else may be launched, without any token."""
        for step in self._steps(start):
            yield partial(self._run_empty, step)
        for plans in self._plans.values():
            yield partial(self._run_sample, plans, start)

    def launches(self, start: Start, adapters: AdapterMemory) -> Iterator[Callable[[], None]]:
        """The same with adapters and without a batch, for a `start` that launches nothing."""
        for step in self._steps(start):
            yield partial(self._program.run, replace(step, adapters=adapters))

    def _steps(self, start: Start) -> Iterator[Step]:
        for bucket in self._buckets.values():
            yield self._step(bucket.tokens, 0, bucket.tiles, start)
        for wanted in {*self._wanted, min(SHORT_PROMPT + 1, self._tokens)} if self._reads else ():
            step = self._step(wanted, wanted, 1, start)
            yield replace(step, logits=self._logits(wanted))
        for tokens in _guesses(min(MAX_COLUMNS, self._tokens)) if self._decodes else ():
            step = self._step(tokens, tokens, 0, start)
            yield replace(step, phase=GENERATION, logits=self._logits(tokens))

    def capture(self, start: Start) -> Iterator[None]:
        """Capture every bucket; all kernels have run before."""
        for size, bucket in self._buckets.items():
            step = self._step(size, 0, bucket.tiles, start)
            self._body[size] = self._graphs.pieces(self._program, step, 0, self._program.body)
            yield
        rest = slice(self._program.body, len(self._program))
        for wanted in self._wanted:
            step = self._step(wanted, wanted, 0, start)
            self._tail[wanted] = self._graphs.capture(partial(self._program.run, step, rest))
            if wanted in self._plans:
                self._sample[wanted] = self._graphs.capture(
                    partial(self._run_sample, self._plans[wanted], start)
                )
            yield

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None], start: Start) -> Replayed:
        """Run a batch and sample the wanted rows that have plans; at most one at a time."""
        begun = self._device.moment()
        logits = self.launch(batch, start)
        if any(plans):
            rows = next_bucket(self._wanted, len(plans))
            assert rows is not None, "rows with plans are at most those of a decode step"
            self._plans[rows].fill(plans)
            self._sample[rows]()
        sampled = self._work.tokens[self._work.prompt_rows :]
        return Replayed.of(self._device, begun, sampled, logits, plans)

    def launch(self, batch: Batch, start: Start) -> torch.Tensor:
        """Run a batch without waiting: logits on the device, until the next step."""
        tokens, wanted = len(batch.ids), len(batch.outputs)
        tiles = query_tiles(batch, self._query_tile)
        rows = next_bucket(self._wanted, wanted)
        plain = batch.phase is PROMPT and rows and batch.adapters is None
        bucket = self._bucket(tokens, len(tiles)) if plain else None
        if bucket is None or rows is None:
            step = self.send(batch, start)
            self._program.run(step)
            return step.logits
        inputs = self._inputs.inputs(bucket.tokens, rows, bucket.tiles)
        self._inputs.fill(batch, inputs, tiles)
        for piece in self._body[bucket.tokens]:
            piece()
        if wanted:
            self._tail[rows]()
        return self._logits(wanted)

    def send(self, batch: Batch, start: Start) -> Step:
        """A batch on the device, whose kernels are launched one by one."""
        tiles, wanted = query_tiles(batch, self._query_tile), len(batch.outputs)
        inputs = self._inputs.inputs(len(batch.ids), wanted, len(tiles))
        self._inputs.fill(batch, inputs, tiles)
        return Step(
            inputs,
            batch.phase,
            self._logits(wanted),
            single=False,
            start=start,
            adapters=None if batch.adapters is None else self._bank.memory,
        )

    def _bucket(self, tokens: int, tiles: int) -> PromptBucket | None:
        """The smallest that takes so many tokens and tiles."""
        fits = (b for b in self._buckets.values() if b.tokens >= tokens and b.tiles >= tiles)
        return next(fits, None)

    def _step(self, tokens: int, wanted: int, tiles: int, start: Start) -> Step:
        inputs = self._inputs.inputs(tokens, wanted, tiles)
        return Step(inputs, PROMPT, self._work.logits[:wanted], single=False, start=start)

    def _run_empty(self, step: Step) -> None:
        self._inputs.clear(step.inputs)
        self._program.run(step)

    def _run_sample(self, plans: RowPlans, start: Start) -> None:
        plans.send()
        self._work.sample(plans.plans, start, self._work.prompt_rows)

    def _logits(self, wanted: int) -> torch.Tensor:
        """Room for logits: the sampler's, or new memory if that is too small."""
        if wanted <= self._work.rows:
            return self._work.logits[:wanted]
        shape = (wanted, self._work.logits.shape[1])
        return torch.empty(shape, dtype=torch.float32, device=self._work.logits.device)


def _guesses(most: int) -> Iterator[int]:
    """Numbers of tokens in steps of guesses, one for each size of a tile."""
    tokens = 1
    while tokens < most:
        yield tokens
        tokens *= 2
    yield most
