"""Bytes of the mapped file to the device, through a ring of pinned buffers.

While one buffer travels, the next is filled from the file: reading and transfer overlap.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.backend import OnSent

_BUFFERS = 4
_BUFFER_BYTES = 32 << 20


@dataclass(slots=True)
class Uploader:
    """Sends tensors one after the other and counts what it sent."""

    device: torch.device
    total: int = 0  # bytes that will be sent
    progress: OnSent | None = None  # is told how many have been, and the total
    sent: int = 0
    seconds: float = 0.0
    _ring: list[torch.Tensor] = field(default_factory=list)
    _busy: list[torch.cuda.Event] = field(default_factory=list)
    _next: int = 0

    def send(self, data: NDArray[np.uint8]) -> torch.Tensor:
        """The bytes on the device."""
        started = time.perf_counter()
        flat = data.reshape(-1)
        if self.device.type == "cpu":
            target = torch.from_numpy(flat.copy())
            self._count(flat.size)
        else:
            target = torch.empty(flat.size, dtype=torch.uint8, device=self.device)
            self._send(flat, target)
        self.seconds += time.perf_counter() - started
        return target

    def _send(self, flat: NDArray[np.uint8], target: torch.Tensor) -> None:
        if not self._ring:
            self._ring = [
                torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=True)
                for _ in range(_BUFFERS)
            ]
            self._busy = [torch.cuda.Event() for _ in range(_BUFFERS)]
        for start in range(0, flat.size, _BUFFER_BYTES):
            piece = flat[start : start + _BUFFER_BYTES]
            buffer, event = self._ring[self._next], self._busy[self._next]
            event.synchronize()  # until what it held last has gone
            buffer.numpy()[: piece.size] = piece
            target[start : start + piece.size].copy_(buffer[: piece.size], non_blocking=True)
            event.record()
            self._next = (self._next + 1) % _BUFFERS
            self._count(piece.size)

    def _count(self, size: int) -> None:
        self.sent += size
        if self.progress:
            self.progress(self.sent, self.total)

    def close(self) -> None:
        """Give the buffers back."""
        if self._ring:
            torch.cuda.synchronize(self.device)
        self._ring, self._busy = [], []
