"""LazyTensor: a tensor's name, type, shape and place in a file; its bytes are read on use.

A `TensorInfo` and its file come in; a view of the bytes goes out. This module does not know what
the bytes mean (`quant/`), nor how a backend stores a tensor on a device.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.files import FileRange
from ingot.gguf.header import TensorInfo
from ingot.gguf.mmap import MmapGguf


class LazyTensor:
    """One tensor of a file, for any number of threads."""

    __slots__ = ("_file", "_reading", "_view", "name", "nbytes", "offset", "shape", "type")

    def __init__(self, info: TensorInfo, file: MmapGguf) -> None:
        self.name = info.name
        self.type = info.type
        self.shape = info.shape  # NumPy's order: the contiguous dimension is last
        self.nbytes = info.nbytes
        self.offset = info.offset  # from the start of its file
        self._file = file
        self._view: NDArray[np.uint8] | None = None
        self._reading = Lock()

    @property
    def path(self) -> Path:
        """The file of the tensor (one of several if the model is split)."""
        return self._file.path

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes: a flat view of the mapped file, or a copy that is read once."""
        with self._reading:
            if self._view is None:
                self._view = self._file.get_slice(self.offset, self.nbytes)
            return self._view

    @property
    def stored(self) -> FileRange | NDArray[np.uint8]:
        """The bytes for a copy into another file; they are not read yet if they are in a file."""
        return self._file.get_range(self.offset, self.nbytes)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"LazyTensor({self.name!r}, {self.type.name}, {shape})"


class HasTensors(Protocol):
    """A file, or tensors of several that are used like one."""

    @property
    def path(self) -> Path:
        """The file that messages name."""

    @property
    def tensors(self) -> Mapping[str, LazyTensor]:
        """Tensors by name."""
