"""Steps of a generation, captured once for 1, 2, 4, ... sequences and replayed.

A replay starts every kernel of a step at once: no Python between them, no allocation. A batch is
filled up to the next captured size with tokens at position -1, which touch nothing.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.gpu.inputs import Inputs
from ingot.backends.gpu.step import Step

if TYPE_CHECKING:
    from ingot.backends.gpu.backend import GpuBackend

MAX_TOKENS = 64
_NO_TILES = np.empty((0, 3), np.int32)


class Replay:
    """Captured steps of one backend."""

    def __init__(self, backend: "GpuBackend", vocabulary: int) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._logits: torch.Tensor | None = None

    def takes(self, batch: Batch) -> bool:
        """Whether a batch is one new token of each of some sequences, all logits wanted."""
        tokens = len(batch.ids)
        return (
            not self._backend.device.interpreted
            and 0 < tokens <= MAX_TOKENS
            and len(batch.counts) == tokens == len(batch.outputs)
        )

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        tokens = len(batch.ids)
        size = int(triton.next_power_of_2(tokens))
        if self._logits is None:
            shape = (MAX_TOKENS, self._vocabulary)
            self._logits = torch.empty(shape, device=self._backend.device.torch)
        inputs = self._backend.inputs.fill(
            batch, tokens=size, wanted=size, tiles=_NO_TILES, sequences=size
        )
        if size not in self._graphs:
            self._graphs[size] = self._capture(inputs, self._logits[:size])
        self._graphs[size].replay()
        # Pinned memory of its own: PyTorch keeps what is given back for the next step.
        host = torch.empty((tokens, self._vocabulary), pin_memory=True)
        host.copy_(self._logits[:tokens], non_blocking=True)
        torch.cuda.current_stream().synchronize()
        found: NDArray[np.float32] = host.numpy()
        return found

    def _capture(self, inputs: Inputs, logits: torch.Tensor) -> torch.cuda.CUDAGraph:
        step = Step(inputs, ExecutionPhase.GENERATION, logits)
        self._backend.launch(step)  # compiles; and runs the step, which the replay then repeats
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._backend.launch(step)
        return graph
