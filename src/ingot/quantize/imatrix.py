"""Importance matrices: how much the inputs of each tensor matter, in llama.cpp's two file formats.

In: the path of a GGUF file (`in_sum2` and `counts` of each tensor) or of the older binary format.
Out: an `ImportanceMatrix`: by tensor, the mean square of each input, for every expert. Sizes are
checked against the file before anything of that size is read. `write_imatrix` writes a GGUF file
from sums that were computed (`ingot.engine.model.input_sums`).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Floats
from ingot.errors import QuantError
from ingot.gguf import GgmlType, GgufLoader
from ingot.gguf.writer import GgufWriter

_SUMS, _COUNTS = ".in_sum2", ".counts"
_MOST_BYTES = 4_000_000_000
_MOST_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class ImportanceMatrix:
    """The means of squared inputs, and what they were computed from."""

    path: Path
    means: Mapping[str, Floats]  # [experts or 1, columns]
    datasets: tuple[str, ...] = ()
    chunks: int = 0

    @classmethod
    def from_sums(
        cls, path: Path, sums: "Mapping[str, InputSums]", *, dataset: str, chunks: int
    ) -> "ImportanceMatrix":
        """What was computed just now; `path` is only said in messages and keys."""
        means = {
            name: _means(found.sums.astype(np.float32), found.counts.astype(np.float32)[:, None])
            for name, found in sums.items()
        }
        return cls(path, means, (dataset,), chunks)

    def of(self, name: str, shape: tuple[int, ...]) -> Floats | None:
        """The importance of the columns of each matrix of a tensor; None if nothing is known.

        The mean of a matrix is 1, and no column counts nothing.
        """
        found = self.means.get(name)
        if found is None:
            return None
        matrices = shape[0] if len(shape) > 2 else 1
        if found.size != matrices * shape[-1]:
            raise QuantError(
                f"{self.path}: {name} has {found.size} numbers, but the tensor needs "
                f"{matrices * shape[-1]}; it is the importance matrix of another model"
            )
        means = found.reshape(matrices, shape[-1])
        if not np.isfinite(means).all() or (means < 0).any():
            raise QuantError(f"{self.path}: {name} has numbers that no square is")
        average = means.mean(axis=1, keepdims=True, dtype=np.float64)
        relative = np.divide(means, average, out=np.ones_like(means), where=average > 0)
        counts: Floats = np.maximum(relative, np.float32(1e-6))
        return counts

    def add_keys(self, writer: GgufWriter) -> None:
        """Say in a quantized file what was used, as llama.cpp does."""
        writer.add("quantize.imatrix.file", self.path.name)
        if self.datasets:
            writer.add("quantize.imatrix.dataset", self.datasets[0])
        writer.add("quantize.imatrix.entries_count", len(self.means))
        if self.chunks:
            writer.add("quantize.imatrix.chunks_count", self.chunks)


def read_imatrix(path: Path) -> ImportanceMatrix:
    """Read a file of either format."""
    with path.open("rb") as file:
        magic = file.read(4)
    found = _read_gguf(path) if magic == b"GGUF" else _read_old(path)
    if not found.means:
        raise QuantError(f"{path} has no entries; it is no importance matrix")
    return found


def _read_gguf(path: Path) -> ImportanceMatrix:
    with GgufLoader(path) as loader:
        means = {}
        for name, tensor in loader.tensors.items():
            counted = loader.tensors.get(name.removesuffix(_SUMS) + _COUNTS)
            if not name.endswith(_SUMS) or counted is None:
                continue
            if {tensor.type, counted.type} != {GgmlType.F32}:
                raise QuantError(f"{path}: {name} and its counts must be F32")
            sums = tensor.data.view(np.float32).reshape(-1, tensor.shape[-1])
            counts = counted.data.view(np.float32).reshape(-1, 1)
            if len(counts) != len(sums):
                raise QuantError(f"{path}: {name} has {len(sums)} rows and {len(counts)} counts")
            means[name.removesuffix(_SUMS)] = _means(sums, counts)
        datasets = loader.metadata.strings("imatrix.datasets", None)
        return ImportanceMatrix(
            path,
            means,
            tuple(datasets or ()),
            loader.metadata.integer("imatrix.chunk_count", 0),
        )


@dataclass(frozen=True, slots=True)
class InputSums:
    """The sums of squared inputs of a tensor's matrices, and how many rows were added to each."""

    sums: NDArray[np.float64]  # [matrices, columns]
    counts: NDArray[np.int64]  # [matrices]

    def add(self, squares: NDArray[np.float64], rows: int) -> None:
        """Add to all matrices what was summed over so many rows."""
        self.sums[:] += squares
        self.counts[:] += rows


def write_imatrix(
    path: Path, sums: Mapping[str, InputSums], *, dataset: str, chunks: int, chunk_size: int
) -> None:
    """Write a GGUF file as llama.cpp's; it appears when it is complete."""
    writer = GgufWriter(path)
    writer.add("general.type", "imatrix")
    writer.add("imatrix.datasets", [dataset])
    writer.add("imatrix.chunk_count", chunks)
    writer.add("imatrix.chunk_size", chunk_size)
    for name, found in sorted(sums.items()):
        writer.add_tensor(name + _SUMS, found.sums.astype(np.float32))
        writer.add_tensor(name + _COUNTS, found.counts.astype(np.float32).reshape(-1, 1))
    writer.write()


def _means(sums: Floats, counts: Floats) -> Floats:
    """Mean squares; experts that no token chose matter as much as any."""
    means: Floats = np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0)
    return means


class _Reader:
    """Numbers and texts of the older format, one after the other."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > _MOST_BYTES:
            raise QuantError(f"{path} is larger than {_MOST_BYTES} bytes")
        self.data, self.at = path.read_bytes(), 0

    @property
    def is_at_end(self) -> bool:
        return self.at == len(self.data)

    def integer(self, most: int) -> int:
        (value,) = struct.unpack_from("<i", self.data, self.at)
        self.at += struct.calcsize("<i")
        if not 0 <= value <= most:
            raise ValueError(f"the number {value} before byte {self.at} is not possible")
        return int(value)

    def bytes(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("it is truncated")
        self.at += size
        return self.data[self.at - size : self.at]


def _read_old(path: Path) -> ImportanceMatrix:
    reader = _Reader(path)
    try:
        means: dict[str, Floats] = {}
        for _ in range(reader.integer(1 << 20)):
            name = reader.bytes(reader.integer(_MOST_NAME_BYTES)).decode()
            calls = reader.integer(2**31 - 1)
            values = np.frombuffer(reader.bytes(4 * reader.integer(1 << 28)), "<f4")
            means[name] = (values / np.float32(max(calls, 1))).astype(np.float32).reshape(1, -1)
        chunks, dataset = 0, ""
        if not reader.is_at_end:
            chunks = reader.integer(2**31 - 1)
            dataset = reader.bytes(reader.integer(1 << 16)).decode("utf-8", "replace")
    except (ValueError, struct.error) as error:
        raise QuantError(f"{path} is no importance matrix: {error}") from None
    return ImportanceMatrix(path, means, (dataset,) if dataset else (), chunks)
