"""How fast this machine reads memory and multiplies: measured once, kept in the cache.

In: the number of threads and the precision. Out: a `Calibration`: bytes per second that plain reads
reach, bytes of weights per second that the decode kernel of a tensor type reaches on all threads
(less for short rows), and the seconds that an operation takes if its weights take none. Each number
is the best of some runs, because a busy machine can only make it worse. Weights are on small pages
here, as those of a mapped file are.

The file in the cache is valid for one CPU, version, instruction set, number of threads and
precision. A file that cannot be read, or is for another machine, is measured again.
"""

import json
import mmap
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.batch import ExecutionPhase
from ingot.backends.cpu.handover import native_precision
from ingot.backends.precision import Precision
from ingot.engine import LoadedModel
from ingot.errors import FileWriteError
from ingot.files import write_file
from ingot.gguf import GgmlType, GgufWriter
from ingot.graph.fusion import fuse
from ingot.machine import CHOOSES_PAGES, choose_pages

# Memory that is read in turn, a part at a time: together more than most last-level caches, each
# short enough to be read without an interruption if the machine is not too busy.
_READ_BYTES, _ROWS_BYTES, _PARTS = 256 << 20, 192 << 20, 4
_WIDE = 2048  # weights of a row; with more, kernels are no faster
_SECONDS = {"read": 0.5, "rows": 0.15, "operations": 0.25}  # to measure one number
_SAMPLE_ROWS = 64
_LAYERS = 16  # of the model that measures operations


@dataclass(frozen=True, slots=True)
class Validity:
    """What a calibration depends on."""

    cpu: str
    version: str
    isa: str
    threads: int
    precision: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of weights that kernels read at the same speed: all from some width on count as wide."""

    type: GgmlType
    width: int

    @classmethod
    def of(cls, kind: GgmlType, width: int) -> "Rows":
        """The rows of a matrix."""
        return cls(kind, min(width, _WIDE))

    @classmethod
    def wide(cls, kind: GgmlType) -> "Rows":
        """Wide rows."""
        return cls(kind, _WIDE)

    @property
    def name(self) -> str:
        """The key in a calibration: `Q8_0`, or `Q8_0/640` for rows of 640 weights."""
        return self.type.name + ("" if self.width == _WIDE else f"/{self.width}")


@dataclass(slots=True)
class Calibration:
    """Measured speeds of one machine."""

    validity: Validity
    read: float  # bytes per second of plain reads, small pages
    read_huge: float | None  # the same from huge pages; None if the system has none
    operation_seconds: float
    rates: dict[str, float] = field(default_factory=dict)  # bytes per second, by name of `Rows`

    @property
    def huge_page_gain(self) -> float | None:
        """How many times faster huge pages are read."""
        return self.read_huge / self.read if self.read_huge else None

    def measure_rows(self, wanted: Iterable[Rows]) -> None:
        """Measure the rows that are not known yet."""
        for rows in wanted:
            if rows.name not in self.rates:
                self.rates[rows.name] = _rate(
                    rows, self.validity.threads, Precision(self.validity.precision)
                )


def load(path: Path, validity: Validity) -> Calibration | None:
    """The calibration in a file, if it is for this machine."""
    try:
        found = json.loads(path.read_text())
        stored = Calibration(**(found | {"validity": Validity(**found["validity"])}))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    numbers = [stored.read, stored.operation_seconds, *stored.rates.values()]
    usable = all(type(number) is float and number > 0 for number in numbers)
    return stored if usable and stored.validity == validity else None


def save(path: Path, calibration: Calibration) -> str | None:
    """Keep a calibration; returns why that was not possible, if it was not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, [json.dumps(asdict(calibration), indent=2).encode()])
    except (FileWriteError, OSError) as error:
        return str(error)
    return None


def measure(validity: Validity) -> Calibration:
    """Measure all but rows of weights: about a second and a half."""
    threads = validity.threads
    read = _read_rate(_memory(_READ_BYTES, huge=False), threads)
    huge = _memory(_READ_BYTES, huge=True) if CHOOSES_PAGES else None
    return Calibration(
        validity,
        read=read,
        read_huge=None if huge is None else _read_rate(huge, threads),
        operation_seconds=_operation_seconds(threads, validity.precision),
    )


def best_seconds(run: Callable[[int], object], budget: float) -> float:
    """The shortest of as many runs as fit into some seconds, after some that do not count.

    A run is told its number.
    """
    for number in range(_PARTS):
        run(number)
    best, began = float("inf"), time.perf_counter()
    for number in count():
        started = time.perf_counter()
        run(number)
        ended = time.perf_counter()
        best = min(best, ended - started)
        if ended - began > budget:
            break
    return best


def _memory(size: int, *, huge: bool) -> NDArray[np.uint8]:
    """Bytes on huge or small pages, as far as the system lets one choose."""
    room = mmap.mmap(-1, size)
    choose_pages(room, huge=huge)
    data = np.frombuffer(room, np.uint8)
    data[:: mmap.PAGESIZE] = 1  # or all of it would be one page of zeros
    return data


def _read_rate(data: NDArray[np.uint8], threads: int) -> float:
    parts = np.split(data, _PARTS)
    seconds = best_seconds(
        lambda number: _native.read_through(parts[number % _PARTS], threads), _SECONDS["read"]
    )
    return len(parts[0]) / seconds


def _rate(measured: Rows, threads: int, precision: Precision) -> float:
    """Bytes of weights per second of the decode kernel, on all threads together.

    Weights are repacked if the kernel can read such a copy, as they are by default.
    """
    kind, width, code = measured.type, measured.width, native_precision(precision)
    row_bytes = width // kind.block_size * kind.block_bytes
    together = _native.interleaved_rows(kind, code)  # of a repacked copy; 0: there is none
    unit = threads * max(together, 1)
    part_rows = max(_ROWS_BYTES // _PARTS // row_bytes // unit, 1) * unit
    rows = part_rows * _PARTS
    sample = sample_weights(kind, width)
    if together:
        copy = _aligned((len(sample), _native.interleaved_row_bytes(kind, width, code)))
        _native.interleave(kind, sample, width, copy, code)
        sample = copy
    stored = sample.shape[1]
    weight = _memory(rows * stored, huge=together > 0).reshape(rows, stored)
    for start in range(0, rows, len(sample)):
        weight[start : start + len(sample)] = sample[: rows - start]
    values = np.random.default_rng(0).standard_normal((1, width)).astype(np.float32)
    quantized = _aligned((16, _native.quantized_bytes(width, code)))
    _native.quantize_inputs(kind, "generation", values, quantized, code)
    out = np.empty((1, rows), np.float32)

    def multiply(begin: int, end: int) -> None:
        _native.linear(
            kind,
            "generation",
            weight,
            values,
            quantized,
            begin,
            end,
            out,
            code,
            interleaved=together > 0,
        )

    with ThreadPoolExecutor(threads) as pool:

        def run(number: int) -> None:
            first = number % _PARTS * part_rows
            ends = [first + part_rows * member // threads for member in range(threads + 1)]
            list(pool.map(multiply, ends[:-1], ends[1:]))

        seconds = best_seconds(run, _SECONDS["rows"])
    return part_rows * row_bytes / seconds


def sample_weights(kind: GgmlType, width: int) -> NDArray[np.uint8]:
    """Rows of random weights that contain no subnormal number: those are multiplied slowly."""
    random = np.random.default_rng(0)
    floats = random.standard_normal((_SAMPLE_ROWS, width)).astype(np.float32)
    match kind:
        case GgmlType.F32:
            return floats.view(np.uint8)
        case GgmlType.F16:
            return floats.astype(np.float16).view(np.uint8)
        case GgmlType.BF16:
            return (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    blocks = width // kind.block_size
    shape = (_SAMPLE_ROWS, blocks, kind.block_bytes)
    # As half floats these are below one and not small, wherever a format has its scales; as
    # exponents they are small numbers.
    sample = random.integers(0x30, 0x3C, shape, dtype=np.uint8)
    return sample.reshape(_SAMPLE_ROWS, -1)


def _aligned(shape: tuple[int, int]) -> NDArray[np.uint8]:
    room = np.zeros(shape[0] * shape[1] + 63, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + shape[0] * shape[1]].reshape(shape)


def _operation_seconds(threads: int, precision: str) -> float:
    """Seconds per operation of a model whose weights stay in the cache of the CPU."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "operations.gguf"
        _write_operations(path)
        with LoadedModel(path, threads=threads, context=64, precision=precision) as model:
            operations = len(fuse(model.graph).ops)
            seconds = decode_seconds(model, _SECONDS["operations"])
    return seconds / operations


def decode_seconds(model: LoadedModel, budget: float) -> float:
    """Seconds of a decode step after a few tokens: the best of those that fit the budget."""
    sequence, outputs, token = model.sequence(), np.zeros(1, np.int32), np.zeros(1, np.int32)

    def step(_: int) -> None:
        nonlocal sequence
        if sequence.length == min(model.context, 64):
            sequence.close()
            sequence = model.sequence()
        token[0] = (token[0] * 31 + 7) % model.graph.vocabulary_size
        model.step([sequence], [token], outputs, ExecutionPhase.GENERATION)

    try:
        return best_seconds(step, budget)
    finally:
        sequence.close()


def _write_operations(path: Path) -> None:
    """A model with many small operations."""
    width, heads, tokens = 128, 2, 32
    writer = GgufWriter(path)
    writer.add("general.architecture", "llama")
    for key, value in {
        "block_count": _LAYERS,
        "context_length": 64,
        "embedding_length": width,
        "feed_forward_length": width,
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
    }.items():
        writer.add(f"llama.{key}", value)
    writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add("tokenizer.ggml.tokens", [str(token) for token in range(tokens)])
    random = np.random.default_rng(0)
    writer.add_tensor("token_embd.weight", random.standard_normal((tokens, width), np.float32))
    for layer in range(_LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            matrix = random.standard_normal((width, width), np.float32) * np.float32(0.1)
            writer.add_tensor(f"blk.{layer}.{name}.weight", matrix)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    writer.write()
