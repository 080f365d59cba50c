"""Steps of a generation, captured once for 1, 2, 4, ... sequences and replayed.

A replay sends the numbers of a batch and starts every kernel of a step: no Python between them, no
allocation. A step is captured in pieces, each longer than the one before: to start a piece takes
time for each of its kernels, and the device runs the first while the others are started. A batch is
filled up to the next captured size with tokens at position -1, which touch nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.gpu.inputs import SingleTokens
from ingot.backends.gpu.step import Step

if TYPE_CHECKING:
    from ingot.backends.gpu.backend import GpuBackend

MAX_TOKENS = 64
FIRST_PIECE = 8  # operations; the next pieces are twice as long as those before them


@dataclass(frozen=True, slots=True)
class _Captured:
    tokens: SingleTokens
    pieces: list[torch.cuda.CUDAGraph]


class Replay:
    """Captured steps of one backend."""

    def __init__(self, backend: "GpuBackend", vocabulary: int) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._captured: dict[int, _Captured] = {}
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
        if size not in self._captured:
            self._captured[size] = self._capture(batch, size, self._logits[:size])
        captured = self._captured[size]
        captured.tokens.fill(batch)
        for piece in captured.pieces:
            piece.replay()
        # Pinned memory of its own: PyTorch keeps what is given back for the next step.
        host = torch.empty((tokens, self._vocabulary), pin_memory=True)
        host.copy_(self._logits[:tokens], non_blocking=True)
        torch.cuda.current_stream().synchronize()
        found: NDArray[np.float32] = host.numpy()
        return found

    def _capture(self, batch: Batch, size: int, logits: torch.Tensor) -> _Captured:
        tokens = SingleTokens(self._backend.inputs, self._backend.device.torch, size)
        step = Step(tokens.inputs, ExecutionPhase.GENERATION, logits, single=True)
        tokens.fill(batch)
        tokens.send()
        self._backend.launch(step)  # compiles; and runs the step, which the replay then repeats
        torch.cuda.synchronize()
        pieces = []
        start, length = 0, FIRST_PIECE
        while start < self._backend.operations:
            piece = torch.cuda.CUDAGraph()
            with torch.cuda.graph(piece):
                if start == 0:
                    tokens.send()
                self._backend.launch(step, slice(start, start + length))
            pieces.append(piece)
            start, length = start + length, 2 * length
        return _Captured(tokens, pieces)
