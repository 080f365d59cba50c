"""Bytes of the mapped file to the device, through a ring of pinned buffers.

The sources are known at the start, in order. A thread reads ahead, and some help it: while one
buffer travels, and while the device packs what has arrived, the next are filled from the file.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.backend import OnProgress
from ingot.backends.gpu.device import Device

_BUFFERS = 4
_BUFFER_BYTES = 32 << 20
_READERS = 4  # threads that fill one buffer together

Source = Callable[[], NDArray[np.uint8]]


class _Buffer:
    """Pinned memory, and whether what it held last has gone."""

    def __init__(self, *, pinned: bool) -> None:
        self.memory = torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=pinned)
        self.array: NDArray[np.uint8] = self.memory.numpy()
        self.gone = torch.cuda.Event() if pinned else None
        self.used = 0

    def fill(self, data: NDArray[np.uint8], pool: ThreadPoolExecutor) -> None:
        """Copy bytes into it, once they can be overwritten."""
        if self.gone:
            self.gone.synchronize()
        self.used = data.size
        share = -(-data.size // _READERS)

        def copy(start: int) -> None:
            part = data[start : start + share]
            self.array[start : start + part.size] = part

        list(pool.map(copy, range(0, data.size, share)))

    def send(self, target: torch.Tensor) -> None:
        """Start its way to the device."""
        target.copy_(self.memory[: self.used], non_blocking=True)
        if self.gone:
            self.gone.record()


@dataclass(frozen=True, slots=True)
class _Failure:
    """What went wrong while reading."""

    error: Exception


class Uploader:
    """Sends what the sources give, one after the other, and counts it; a context manager."""

    def __init__(
        self,
        device: Device,
        sources: Iterable[Source],
        total: int,
        progress: OnProgress | None = None,
    ) -> None:
        """`total` bytes will be sent; `progress` is called with how many have been."""
        self.sent = 0
        self.seconds = 0.0  # from the start to the end
        self._device, self._total, self._progress = device, total, progress
        self._started = time.perf_counter()
        self._free: SimpleQueue[_Buffer | None] = SimpleQueue()
        self._filled: SimpleQueue[_Buffer | _Failure] = SimpleQueue()
        for _ in range(_BUFFERS):
            self._free.put(_Buffer(pinned=not device.interpreted))
        self._reader = Thread(target=self._read, args=(sources,), name="ingot-upload", daemon=True)
        self._reader.start()

    def receive(self, size: int) -> torch.Tensor:
        """What the next source gives, so many bytes, on the device."""
        target = torch.empty(size, dtype=torch.uint8, device=self._device.torch)
        start = 0
        while start < size:
            buffer = self._filled.get()
            if isinstance(buffer, _Failure):
                raise buffer.error
            buffer.send(target[start : start + buffer.used])
            start += buffer.used
            self.sent += buffer.used
            self._free.put(buffer)
            if self._progress:
                self._progress(self.sent, self._total)
        return target

    def _read(self, sources: Iterable[Source]) -> None:
        try:
            with ThreadPoolExecutor(_READERS, "ingot-upload") as pool:
                for source in sources:
                    data = source().reshape(-1)
                    for start in range(0, data.size, _BUFFER_BYTES):
                        buffer = self._free.get()
                        if buffer is None:
                            return
                        buffer.fill(data[start : start + _BUFFER_BYTES], pool)
                        self._filled.put(buffer)
            self._filled.put(_Failure(EOFError("all sources have been sent")))
        except Exception as error:  # which the thread that receives raises
            self._filled.put(_Failure(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the thread, and give the buffers back when all of them have arrived."""
        self._free.put(None)
        self._reader.join()
        self._device.wait()
        self._free, self._filled = SimpleQueue(), SimpleQueue()
        self.seconds = time.perf_counter() - self._started
