"""A model's file or files, opened in milliseconds: header now, tensors when asked for.

A path comes in; typed metadata and lazy tensors go out. It does not know what
architecture the metadata describe nor how a backend keeps a tensor.
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
    "open the model again once the file is whole; to replace a file that is in use, write the new "
    "one beside it and rename it"
)


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """How often `load_tensor` found a tensor where it was wanted, and how often not."""

    hits: int
    misses: int


class GgufLoader:
    """An open model; safe to use from any thread."""

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True) -> None:
        """Without `mapped`, every tensor that is used is read into memory of its own."""
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
        """One tensor's bytes, or what the backend made of them; made once, then kept."""
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
        """What `load_tensor` and `load_all` found so far."""
        with self._counting:
            return CacheCounts(self._hits, self._misses)

    @property
    def is_mapped(self) -> bool:
        """Whether tensors are views of a file rather than copies."""
        return any(file.is_mapped for file in self.files)

    @property
    def change(self) -> str | None:
        """What somebody did to a file of the model since it was opened; None: nothing known."""
        for file in self.files:
            if file.change is not None:
                return f"{file.path} {file.change}"
        return None

    @property
    def is_replaced(self) -> bool:
        """Whether a path of the model leads to another file by now. This one can be used on."""
        return any(file.is_replaced for file in self.files)

    def check(self) -> None:
        """Raise `ModelChangedError` if what was read of the files cannot be trusted any more."""
        if (change := self.change) is not None:
            raise ModelChangedError(f"{change}; {_REMEDY}")

    def prefetch(self) -> None:
        """Ask the system to read the files ahead of their use."""
        for file in self.files:
            file.prefetch()

    def lock(self) -> None:
        """Read the files and keep them in memory as long as a tensor's view lives."""
        for file in self.files:
            file.lock()

    def close(self) -> None:
        """Close the files. Views that were handed out stay valid."""
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
            raise GgufError("there is no such tensor", field=name, path=self.path)
        return self.tensors[name]
