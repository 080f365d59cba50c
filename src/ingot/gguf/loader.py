"""GgufLoader: the files of a model, opened in milliseconds; tensors load on demand.

In: a path. Out: typed metadata and lazy tensors. It does not know the architecture, nor how a
backend stores a tensor.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ingot.errors import GgufError, ModelChangedError
from ingot.gguf.metadata import Metadata
from ingot.gguf.splits import open_parts
from ingot.gguf.tensor import Backend, LazyTensor, TensorState

T = TypeVar("T")
_REMEDY = (
    "open the model again once the file is complete; to replace a file that is in use, write the "
    "new one next to it and rename it"
)


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """How often `load_tensor` found a tensor already loaded, and how often not."""

    hits: int
    misses: int


class GgufLoader:
    """The open files of a model, for any number of threads."""

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True) -> None:
        """Without `mapped`, every tensor that is used is read into memory."""
        parts = open_parts(Path(path), mapped=mapped)
        self.files = tuple(part.file for part in parts)
        self.path = self.files[0].path
        self.version = parts[0].header.version
        self.alignment = parts[0].header.alignment
        self.metadata: Metadata = parts[0].metadata
        self.tensors: Mapping[str, LazyTensor] = MappingProxyType(
            {
                info.name: LazyTensor(info, part.file)
                for part in parts
                for info in part.header.tensors
            }
        )
        self._counting = Lock()
        self._hits = 0
        self._misses = 0

    @overload
    def load_tensor(self, name: str, backend: None = None) -> NDArray[np.uint8]: ...
    @overload
    def load_tensor(self, name: str, backend: Backend[T]) -> T: ...
    def load_tensor(self, name: str, backend: Backend[Any] | None = None) -> Any:
        """The bytes of a tensor, or the backend's tensor, which is uploaded once and kept."""
        loaded, hit = self._tensor(name).load(backend)
        with self._counting:
            self._hits += hit
            self._misses += not hit
        return loaded

    def is_tensor_loaded(self, name: str) -> bool:
        """Whether the tensor is mapped or resident on a device."""
        return self._tensor(name).state is not TensorState.UNLOADED

    @overload
    def load_all(self, backend: None = None) -> dict[str, NDArray[np.uint8]]: ...
    @overload
    def load_all(self, backend: Backend[T]) -> dict[str, T]: ...
    def load_all(self, backend: Backend[Any] | None = None) -> dict[str, Any]:
        """Every tensor, in the order of the files."""
        return {name: self.load_tensor(name, backend) for name in self.tensors}

    @property
    def cache(self) -> CacheCounts:
        """The counts of `load_tensor` and `load_all` so far."""
        with self._counting:
            return CacheCounts(self._hits, self._misses)

    @property
    def is_mapped(self) -> bool:
        """Whether tensors are views of a file rather than copies."""
        return any(file.is_mapped for file in self.files)

    @property
    def change(self) -> str | None:
        """How a file of the model changed since it was opened; None if no change is known."""
        for file in self.files:
            if file.change is not None:
                return f"{file.path} {file.change}"
        return None

    @property
    def is_replaced(self) -> bool:
        """Whether another file has replaced one of the model. The open one stays usable."""
        return any(file.is_replaced for file in self.files)

    def check(self) -> None:
        """Raise `ModelChangedError` if a file changed since it was opened."""
        if (change := self.change) is not None:
            raise ModelChangedError(f"{change}; {_REMEDY}")

    def prefetch(self) -> None:
        """Ask the system to read the files ahead of their use."""
        for file in self.files:
            file.prefetch()

    def lock(self) -> None:
        """Read the files and lock them in memory as long as a view of a tensor lives."""
        for file in self.files:
            file.lock()

    def close(self) -> None:
        """Close the files. Existing views stay valid."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GgufLoader({str(self.path)!r}, {len(self.tensors)} tensors)"

    def _tensor(self, name: str) -> LazyTensor:
        if name not in self.tensors:
            raise GgufError("the file has no such tensor", field=name, path=self.path)
        return self.tensors[name]
