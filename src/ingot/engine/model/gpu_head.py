"""GpuHeadProgram: the layer of a head on the GPU of its model; GpuFuse: what a draft reads there.

Hidden states stay on the device, and so do the tokens of a guess until all of them are there: each
step takes the token that the one before has sampled. It imports PyTorch.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from ingot.arrays import Ints
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan
from ingot.backends.gpu import GpuBackend, GpuPlan, joined_graph, sampling_plans
from ingot.engine.model.gpu_programs import STEP_TOKENS
from ingot.engine.model.head_program import NextToken
from ingot.engine.model.joined_rows import HeadInputs
from ingot.engine.model.loaded_model import LoadedModel, build_batch
from ingot.errors import CacheFullError
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout, whole_blocks
from ingot.kvcache import SequenceBlocks

_LIKELIEST = SamplingPlan(1, 2.0, float("inf"), 1, 1.0, 0.0)
_NONE = np.empty(0, np.int32)
_AT_ONCE = 2  # steps that may run before the host waits
_SAMPLED = np.array([-1], np.int32)  # the token that the step before sampled


class GpuHeadProgram:
    """The layer on a GPU."""

    def __init__(
        self,
        model: LoadedModel,
        graph: ComputationGraph,
        weights: HasTensors,
        layout: KvLayout,
        inputs: HeadInputs,
        *,
        blocks: int,
        hidden: o.Value,
        token_map: Ints | None,
        lent: frozenset[str] | None,
    ) -> None:
        """`hidden` is the value of the graph with which the layer continues.

        `lent` names the tensors that are the model's; None: all are of its file.
        """
        first = model.gpu_program
        self._device = first.device.torch
        self._hidden, self._width = hidden.name, inputs.table.shape[1]
        plan = GpuPlan.of(
            joined_graph(
                graph, inputs.table, inputs.token_norm, inputs.hidden_norm, inputs.epsilon
            ),
            weights,
            layout,
            first.device,
            context=model.context,
            tokens=min(STEP_TOKENS, whole_blocks(model.context)),
            sequences=1,
            keep=[hidden.name],
        )
        self._backend = GpuBackend(plan, weights, blocks=blocks, weights=first.weights, lent=lent)
        model.beside += (self._backend,)
        self._likeliest = sampling_plans([_LIKELIEST], self._device)
        self._token_map = (
            None if token_map is None else torch.from_numpy(token_map).to(self._device)
        )

    @property
    def max_tokens(self) -> int:
        """The most tokens of one step."""
        return self._backend.max_tokens

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        self._backend.copy_block(group, source, target)

    def read(self, sequence: SequenceBlocks, ids: Ints, hidden: torch.Tensor) -> None:
        """Run tokens."""
        self._backend.put_rows(hidden)
        self._backend.launch(_batch(sequence, ids, _NONE))

    def next_token(self, sequence: SequenceBlocks, ids: Ints, hidden: torch.Tensor) -> NextToken:
        """Run tokens and choose the likeliest one after them."""
        token = self._choose(sequence, ids, hidden)()
        return NextToken(token, self._backend.last_logits, self._after())

    def guess(
        self, sequence: SequenceBlocks, ids: Ints, hidden: torch.Tensor, most: int
    ) -> list[int]:
        """One token after the other; the host waits for all of them at once."""
        said = [self._choose(sequence, ids, hidden)]
        try:
            while len(said) < most:
                after, token = self._after(), self._backend.sampled
                if self._token_map is not None:
                    token.copy_(self._token_map[token.clamp(min=0).long()])
                if len(said) >= _AT_ONCE:
                    said[-_AT_ONCE]()
                said.append(self._choose(sequence, _SAMPLED, after))
        except CacheFullError:  # other texts fill the layer's cache
            pass
        return [token() for token in said]

    def joined(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """A copy of some hidden states, below each other."""
        return torch.cat(list(rows))

    def empty(self, count: int) -> torch.Tensor:
        """So many hidden states of zeros."""
        return torch.zeros((count, self._width), device=self._device)

    def _choose(
        self, sequence: SequenceBlocks, ids: Ints, hidden: torch.Tensor
    ) -> Callable[[], int]:
        """Start a step; the function waits for the likeliest token after these.

        A row of numbers that are none has no likeliest token; then it is 0, a wrong guess.
        """
        batch = _batch(sequence, ids, np.array([len(ids) - 1], np.int32))
        self._backend.put_rows(hidden)
        if batch.phase is ExecutionPhase.GENERATION:
            started = self._backend.start(batch, [_LIKELIEST])
            return lambda: max(int(started.result().tokens[0]), 0)
        token = self._backend.choose(batch, self._likeliest).clone()
        return lambda: max(int(token), 0)

    def _after(self) -> torch.Tensor:
        """The hidden state after the last token."""
        return self._backend.kept([self._hidden], 1)


def _batch(sequence: SequenceBlocks, ids: Ints, outputs: Ints) -> Batch:
    """The next tokens of a sequence, which grows: one is decoded, and several are captured as a
    prompt's."""
    sequence.grow(len(ids))
    counts = np.array([len(ids)], np.int32)
    single = len(ids) == len(outputs) == 1
    phase = ExecutionPhase.GENERATION if single else ExecutionPhase.PROMPT
    return build_batch([sequence], ids, counts, outputs, phase)


class GpuFuse:
    """What makes one hidden state of several, on a GPU."""

    def __init__(
        self,
        model: LoadedModel,
        graph: ComputationGraph,
        weights: HasTensors,
        layout: KvLayout,
        lent: frozenset[str],
    ) -> None:
        first = model.gpu_program
        plan = GpuPlan.of(
            graph,
            weights,
            layout,
            first.device,
            context=first.max_tokens,
            tokens=first.max_tokens,
            sequences=0,
        )
        self._backend = GpuBackend(plan, weights, blocks=0, weights=first.weights, lent=lent)
        model.beside += (self._backend,)

    def forward(self, batch: Batch, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states of the draft, for those of the target [tokens, several widths]."""
        self._backend.put_rows(hidden)
        return self._backend.launch(replace(batch, phase=ExecutionPhase.PROMPT)).clone()
