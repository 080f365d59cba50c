"""LazyTensor: a tensor of a file that is mapped or uploaded on first use.

In: a `TensorInfo` and its file. Out: a view of the bytes, or the tensor that a backend uploaded,
created at most once. It does not know what the bytes mean (`quant/`), nor what a backend is beyond
a name and an upload.
"""

from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ingot.gguf.header import TensorInfo
from ingot.gguf.mmap import MmapGguf

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TensorState(Enum):
    """Where the bytes of a tensor are."""

    UNLOADED = "unloaded"
    MAPPED = "mapped"  # a view of the file
    RESIDENT = "resident"  # uploaded to at least one device


class Backend(Protocol[T_co]):
    """Uploads tensors to a device, which its name identifies (`cuda:0`, `cuda:1`)."""

    @property
    def name(self) -> str:
        """The name of the device."""

    def upload(self, tensor: "LazyTensor") -> T_co:
        """Copy the tensor to the device."""


class LazyTensor:
    """One tensor of a file, for any number of threads."""

    __slots__ = (
        "_file",
        "_loading",
        "_mapping",
        "_uploads",
        "_view",
        "name",
        "nbytes",
        "offset",
        "shape",
        "type",
    )

    def __init__(self, info: TensorInfo, file: MmapGguf) -> None:
        self.name = info.name
        self.type = info.type
        self.shape = info.shape  # NumPy's order: the contiguous dimension last
        self.nbytes = info.nbytes
        self.offset = info.offset  # from the start of its file
        self._file = file
        self._view: NDArray[np.uint8] | None = None
        self._uploads: dict[str, Any] = {}
        self._mapping = Lock()  # separate from the next: an upload needs the view, in any thread
        self._loading = Lock()

    @property
    def path(self) -> Path:
        """The file of the tensor (one of several if the model is split)."""
        return self._file.path

    @property
    def state(self) -> TensorState:
        """Where the bytes are."""
        if self._uploads:
            return TensorState.RESIDENT
        return TensorState.UNLOADED if self._view is None else TensorState.MAPPED

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices it was uploaded to."""
        return tuple(self._uploads)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes: a flat view of the file."""
        with self._mapping:
            if self._view is None:
                self._view = self._file.get_slice(self.offset, self.nbytes)
            return self._view

    @overload
    def load(self, backend: None = None) -> tuple[NDArray[np.uint8], bool]: ...
    @overload
    def load(self, backend: Backend[T]) -> tuple[T, bool]: ...
    def load(self, backend: Backend[Any] | None = None) -> tuple[Any, bool]:
        """The bytes or the backend's tensor, and whether they were loaded before."""
        with self._loading:
            if backend is None:
                hit = self._view is not None
                return self.data, hit
            if backend.name in self._uploads:
                return self._uploads[backend.name], True
            uploaded = self._uploads[backend.name] = backend.upload(self)
            if not self._file.is_mapped:  # free the copy that was read for the upload
                self._view = None
            return uploaded, False

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"LazyTensor({self.name!r}, {self.type.name}, {shape}, {self.state.value})"
