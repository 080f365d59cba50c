"""Copy the matrices of a model into memory, with their rows interleaved, while it runs.

A CPU reads such a copy in one stream, straight into its lanes (`native/kernels/linear_strips.h`).
A thread of low priority copies one matrix after the other. Kernels use each copy as soon as it is
there, and give the same bits as without. Formats that gain nothing have no copies.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingot.machine import lower_priority

if TYPE_CHECKING:
    from ingot.backends.cpu.backend import CpuBackend


@dataclass(frozen=True, slots=True)
class Copies:
    """The memory that copies of matrices take, and what becomes of the matrices."""

    size: int  # bytes
    replace: bool  # the mapped pages of the file are given back after the last copy

    @classmethod
    def of(cls, backend: "CpuBackend", *, mapped: bool) -> "Copies | None":
        """Those of a backend, whose file is mapped or not; None if it copies nothing."""
        if not (size := backend.copied_bytes):
            return None
        return cls(size, mapped and backend.copies_replace)

    @property
    def remark(self) -> str:
        """Both in a line."""
        size = f"{self.size / 2**30:.2f} GiB"
        if self.size < 1 << 30:
            size = f"{self.size / 2**20:.1f} MiB"
        pages = "are given back after that" if self.replace else "stay in use"
        return (
            f"{size} of weights are copied in the background, in the order in which the CPU reads "
            f"them; the pages of the file {pages}"
        )


class Repacking:
    """The thread that copies the matrices of a backend, to `size` bytes."""

    def __init__(
        self,
        backend: "CpuBackend",
        is_intact: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        """Begin. `is_intact` says whether what was just copied may be used; else no more is copied.

        `on_end` is called, in the thread, after the last copy.
        """
        self.size = backend.copied_bytes
        self._backend = backend
        self._is_intact, self._on_end = is_intact, on_end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="ingot-repack", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        lower_priority()  # threads that compute go first
        while not self._stop.is_set():
            try:
                copied = self._backend.copy_next()
            except MemoryError:  # others took it meanwhile; the file serves as well
                return
            if not self._is_intact():
                return
            if not copied:
                self._on_end()
                return

    def wait(self) -> None:
        """Wait until all is copied."""
        self._thread.join()

    def close(self) -> None:
        """Stop after the matrix that is being copied."""
        self._stop.set()
        self._thread.join()
