"""A GGUF file that is not on a disk: its header in memory, its tensors made on use.

In: a writer with all keys and tensors, and a function that gives the bytes of a tensor. Out: a
`GgufLoader`, so that a checkpoint runs like a file. It has the methods of `MmapGguf`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ingot.arrays import Bytes
from ingot.errors import GgufError, MemoryShortageError
from ingot.gguf import GgufLoader, GgufWriter
from ingot.gguf.header import parse_header
from ingot.gguf.metadata import Metadata
from ingot.gguf.mmap import MmapGguf
from ingot.gguf.splits import Part


class UnwrittenFile(MmapGguf):
    """The file that a writer would write."""

    def __init__(self, path: Path, writer: GgufWriter, produce: Callable[[str], Bytes]) -> None:
        self.path = path
        header = np.frombuffer(writer.header(), np.uint8)
        self.size = len(header) + writer.data_bytes
        self._header = parse_header(header, self.size, path)
        self._names = {tensor.offset: tensor.name for tensor in self._header.tensors}
        self._produce = produce

    def loader(self) -> GgufLoader:
        """The file as an open model."""
        return GgufLoader.of(Part(self, self._header, Metadata(self._header, self.path)))

    @property
    def is_mapped(self) -> bool:
        """Some tensors are views of the checkpoint, others are copies."""
        return False

    def get_slice(self, offset: int, size: int) -> Bytes:
        """The bytes of a tensor."""
        if offset not in self._names:
            raise GgufError("no tensor begins here", field="slice", offset=offset, path=self.path)
        data = self._produce(self._names[offset])
        if len(data) != size:
            raise GgufError(
                f"the tensor has {len(data)} bytes instead of {size}",
                field=self._names[offset],
                path=self.path,
            )
        return data

    def get_range(self, offset: int, size: int) -> Bytes:
        """The same: there is no file to copy from."""
        return self.get_slice(offset, size)

    @property
    def change(self) -> str | None:
        """The checkpoint's own files notice changes."""
        return None

    @property
    def is_replaced(self) -> bool:
        """There is no file that could be."""
        return False

    def prefetch(self) -> None:
        """Nothing to read ahead."""

    def release(self, size: int) -> None:
        """Nothing to give back."""

    def lock(self) -> None:
        """Cannot be done: what is mapped belongs to the checkpoint."""
        raise MemoryShortageError(
            f"{self.path} is a checkpoint, which cannot be locked in memory; convert it first "
            "(`ingot convert`)"
        )

    def close(self) -> None:
        """Nothing to close: views keep the checkpoint's files open."""
