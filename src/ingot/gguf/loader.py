"""GgufLoader: the files of a model, opened in milliseconds; tensors load on demand.

In: a path. Out: typed metadata and lazy tensors. It does not know the architecture, nor how a
backend stores a tensor.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from ingot.errors import ModelChangedError
from ingot.gguf.metadata import Metadata
from ingot.gguf.splits import Part, open_parts
from ingot.gguf.tensor import LazyTensor

_REMEDY = (
    "open the model again once the file is whole; to replace a file that is in use, write the new "
    "one beside it and rename it"
)


class GgufLoader:
    """The open files of a model, for any number of threads."""

    def __init__(self, path: str | os.PathLike[str], *, mapped: bool = True) -> None:
        """Without `mapped`, every tensor that is used is read into memory."""
        self._open(open_parts(Path(path), mapped=mapped))

    @classmethod
    def of(cls, part: Part) -> Self:
        """A model that is in a single part, which is already open."""
        loader = cls.__new__(cls)
        loader._open((part,))
        return loader

    def _open(self, parts: Sequence[Part]) -> None:
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

    def release(self) -> None:
        """Give back the memory of the files; what is needed again is read again."""
        for file in self.files:
            file.release(file.size)

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
