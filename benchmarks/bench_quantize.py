"""Quantization next to llama.cpp's quantizer: bits, error, speed, and what a given size loses.

    python benchmarks/bench_quantize.py types [--peer PYTHON] [--only Q4_K ...] [--weights 100]
    python benchmarks/bench_quantize.py size [--peer PYTHON] [--only Q4_K_M ...]

types: the speed and the error of each type. Both quantizers encode the same Gaussian weights on one
thread, piece by piece in turn, until all are done or both had their seconds; CPU time counts, so
that a busy machine disturbs little. The errors are ours divided by llama.cpp's: root mean squares
on Gaussian weights; on matrices of a model (dequantized); on these with an importance matrix, where
each error counts as much as its column. Of several matrices the worst is shown.

size: a model as llama.cpp's mixes, and by `ingot quantize --target-size` in files of the same size,
with one importance matrix. The types are chosen on one text, and the mean KL divergence from the
original is measured on another.

The model is SmolLM2, or Gemma 3 270M (--model gemma), as F16. Its weights lie on the grid of the
type that its file has, and that type would keep them exactly; so each is moved at random by up to
half a step of the grid first, which makes them as even as weights that were never quantized.

PYTHON is an interpreter with llama-cpp-python (see benchmarks/peer.py). Without it the columns of
llama.cpp stay empty, and there is no table of sizes.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import models
from ingot import LLM, _native
from ingot.cli.compare import compare
from ingot.cli.shared.chunks import split_chunks
from ingot.config import config
from ingot.engine.model.fit_size import fit_size
from ingot.engine.model.input_sums import sum_inputs
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.gguf.copying import copy_keys, copy_tensor
from ingot.quant import decode, encode
from ingot.quantize import model_shape, plan
from ingot.quantize.imatrix import ImportanceMatrix
from ingot.quantize.mixes import MIXES
from ingot.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
CALIBRATION = ("docs/architecture.md", "docs/engine.md")
EVALUATION = ("README.md", "CONTRIBUTING.md", "docs/performance.md")
CONTEXT = 256  # tokens of a chunk
CALIBRATED, EVALUATED = 24, 10  # chunks
SAMPLE = "blk.{}.ffn_down.weight"  # of the first, a middle and the last layer; rows of whole blocks
ROW = 1024  # of Gaussian weights
PIECE = 1 << 18  # weights that one quantizer encodes before the other does
SECONDS = 3.0  # of each quantizer for a type
STEPS = {"Q4_1": 15, "Q8_0": 254, "Q5_0": 31, "Q4_K": 15, "Q5_K": 31, "Q6_K": 63}  # of a grid
GRID = 32  # weights that share a step
SIZES = ("IQ2_M", "IQ3_M", "Q3_K_M", "IQ4_XS", "Q4_K_S", "Q4_K_M", "Q5_K_M")
WORKER = Path(__file__).with_name("llama_cpp_quantize_worker.py")
NEEDS_IMATRIX = ("IQ2_XXS", "IQ2_XS", "IQ1_S")  # of ggml_quantize_chunk

Floats = NDArray[np.float32]
Encoder = Callable[[Floats, GgmlType, Floats | None], NDArray[np.uint8]]


def llama_cpp(python: str) -> Encoder:
    """llama.cpp's quantizer on one thread."""
    find = "import llama_cpp, pathlib; print(pathlib.Path(llama_cpp.__file__).parent)"
    found = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True)
    library = ctypes.CDLL(str(next((Path(found.stdout.strip()) / "lib").glob("libggml-base*"))))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t

    def quantize(weights: Floats, type: GgmlType, importance: Floats | None) -> NDArray[np.uint8]:
        out = np.zeros(weights.size // type.block_size * type.block_bytes, np.uint8)
        rows, columns = weights.shape
        library.ggml_quantize_chunk(
            ctypes.c_int(type),
            weights.ctypes.data_as(ctypes.c_void_p),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(0),
            ctypes.c_int64(rows),
            ctypes.c_int64(columns),
            None if importance is None else importance.ctypes.data_as(ctypes.c_void_p),
        )
        return out

    return quantize


def on_one_thread(weights: Floats, type: GgmlType, importance: Floats | None) -> NDArray[np.uint8]:
    return encode(weights, type, threads=1, importance=importance)


@dataclass
class Speed:
    """What a quantizer has done so far."""

    encode: Encoder
    seconds: float = 0.0
    weights: int = 0

    def add(self, weights: Floats, type: GgmlType, importance: Floats | None) -> None:
        """Encode more, unless its time is over."""
        if self.seconds < SECONDS:
            start = time.thread_time()
            self.encode(weights, type, importance)
            self.seconds += time.thread_time() - start
            self.weights += weights.size

    @property
    def shown(self) -> str:
        """Millions of weights per second."""
        return f"{self.weights / self.seconds / 1e6:.1f}"


def error(weights: Floats, blocks: NDArray[np.uint8], type: GgmlType, counts: Floats) -> float:
    difference = weights.astype(np.float64) - decode(blocks, type, weights.shape)
    return float(np.sqrt((np.square(difference) * counts).mean()))


def show_types(peer: Encoder | None, only: Sequence[str], million: int, texts: Path) -> None:
    """A row for each type."""
    gaussian = np.float32(0.02) * np.random.default_rng(0).standard_normal(
        (million * 10**6 // ROW, ROW), dtype=np.float32
    )
    few = gaussian[: PIECE // ROW]
    real: list[tuple[Floats, Floats]] = []  # weights, and how much their columns count
    with GgufLoader(texts / "F16.gguf") as model:
        imatrix = calibrated(model)
        last = model_shape(model).layers - 1
        for name in [SAMPLE.format(layer) for layer in (0, last // 2, last)]:
            tensor = model.tensors[name]
            values = decode(tensor.data, tensor.type, tensor.shape)
            real.append((values, imatrix.means[name][0]))
    print("| type | bits | Ingot | llama.cpp | error | of a model | with importance |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for type in GgmlType:
        if not _native.has_encoder(type) or type is GgmlType.Q8_K:
            continue
        if only and type.name not in only:
            continue
        needs = type.name in NEEDS_IMATRIX
        even = {size: np.ones(size, np.float32) for size in (ROW, real[0][0].shape[1])}
        given = even[ROW] if needs else None
        speeds = [Speed(encoder) for encoder in (on_one_thread, peer) if encoder is not None]
        for first in range(0, len(gaussian), PIECE // ROW):
            for speed in speeds:
                speed.add(
                    gaussian[first : first + PIECE // ROW],
                    type,
                    None if speed.encode is on_one_thread else given,
                )
        errors = [""] * 3
        if peer is not None:
            errors[0] = shown_ratio([ratio(few, type, peer, given, even[ROW])])
            errors[1] = shown_ratio(
                [
                    ratio(values, type, peer, ones if needs else None, ones)
                    for values, counts in real
                    for ones in [even[len(counts)]]
                ]
            )
            errors[2] = shown_ratio(
                [ratio(values, type, peer, counts, counts) for values, counts in real]
            )
        bits = 8 * type.block_bytes / type.block_size
        rates = [speed.shown for speed in speeds] + [""] * (2 - len(speeds))
        print(f"| {' | '.join([type.name, f'{bits:.2f}', *rates, *errors])} |", flush=True)


def ratio(
    weights: Floats, type: GgmlType, peer: Encoder, importance: Floats | None, counts: Floats
) -> float | None:
    """Our error divided by llama.cpp's; None if both are 0."""
    ours = error(weights, on_one_thread(weights, type, importance), type, counts)
    theirs = error(weights, peer(weights, type, importance), type, counts)
    return None if ours == theirs == 0 else ours / theirs if theirs else float("inf")


def shown_ratio(ratios: Sequence[float | None]) -> str:
    """The worst of several."""
    found = [ratio for ratio in ratios if ratio is not None]
    return f"{max(found):.3f}" if found else "both 0"


def write_spread(model: GgufLoader, path: Path) -> None:
    """Write a model as F16, each weight moved at random by up to half a step of its grid."""
    rng = np.random.default_rng(1)
    writer = GgufWriter(path)
    copy_keys(model, writer)
    for tensor in model.tensors.values():
        if tensor.type.block_size == 1:
            copy_tensor(tensor, writer)
            continue
        values = decode(tensor.data, tensor.type).reshape(-1, GRID)
        step = np.ptp(values, axis=1, keepdims=True) / STEPS[tensor.type.name]
        values += step * rng.uniform(-0.5, 0.5, values.shape).astype(np.float32)
        writer.add_tensor(tensor.name, encode(values, GgmlType.F16), GgmlType.F16, tensor.shape)
    writer.write()


def read(names: Sequence[str]) -> bytes:
    return b"\n".join((ROOT / name).read_bytes() for name in names)


def chunks_of(model: GgufLoader, names: Sequence[str]) -> list[NDArray[np.int32]]:
    tokenizer = Tokenizer.from_metadata(model.metadata)
    found = split_chunks(tokenizer.encode(read(names)), tokenizer, CONTEXT)
    return [np.array(chunk, np.int32) for chunk in found]


def calibrated(model: GgufLoader) -> ImportanceMatrix:
    chunks = chunks_of(model, CALIBRATION)[:CALIBRATED]
    sums = sum_inputs(model, chunks, threads=config().threads)
    return ImportanceMatrix.from_sums(
        ROOT / "docs", sums, dataset="documentation", chunks=len(chunks)
    )


def show_sizes(python: str, only: Sequence[str], folder: Path) -> None:
    """A row for each mix: KL of llama.cpp's file, and of ours in the same size."""
    original = folder / "F16.gguf"
    names = [name for name in SIZES if not only or name in only]
    with GgufLoader(original) as model:
        imatrix = calibrated(model)
        chunks = chunks_of(model, CALIBRATION)[:CALIBRATED]
        evaluated = chunks_of(model, EVALUATION)[:EVALUATED]
        means: dict[str, Any] = {name: mean.ravel() for name, mean in imatrix.means.items()}
        np.savez(folder / "imatrix.npz", **means)
        jobs = [(str(folder / f"{name}.gguf"), MIXES[name].file_type) for name in names]
        arguments = [str(original), str(folder / "imatrix.npz"), json.dumps(jobs)]
        subprocess.run([python, str(WORKER), *arguments], check=True)
        print("| size of | MB | KL of llama.cpp's mix | of ours, same types | by --target-size |")
        print("|---|---:|---:|---:|---:|")
        for name, (theirs, _) in zip(names, jobs, strict=True):
            size = Path(theirs).stat().st_size
            same = plan(model, MIXES[name], imatrix=imatrix).write(folder / "same.gguf")[0]
            fitted = fit_size(
                model, chunks, imatrix, target_size=size, threads=config().threads,
                progress=lambda *_: None,
            )  # fmt: skip
            ours = fitted.write(folder / "ours.gguf")[0]
            assert ours.stat().st_size <= size
            found = [divergence(original, Path(path), evaluated) for path in (theirs, same, ours)]
            less = 1 - found[2] / found[0]
            print(
                f"| {name} | {size / 1e6:.1f} | {found[0]:.5f} | {found[1]:.5f} "
                f"| {found[2]:.5f} ({less:.0%} less) |",
                flush=True,
            )


def divergence(a: Path, b: Path, chunks: Sequence[NDArray[np.int32]]) -> float:
    with LLM(a, context=CONTEXT) as first, LLM(b, context=CONTEXT) as second:
        return compare(first, second, [chunk.tolist() for chunk in chunks]).kl_mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=["types", "size"], default=["types", "size"])
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with llama-cpp-python")
    parser.add_argument("--only", nargs="+", default=[], help="types, or mixes whose size is taken")
    parser.add_argument("--weights", type=int, default=100, help="millions of Gaussian weights")
    parser.add_argument("--model", choices=["smollm2", "gemma"], default="smollm2")
    asked = parser.parse_args()
    only = [name.upper() for name in asked.only]
    with TemporaryDirectory() as name:
        folder = Path(name)
        source = models.gemma() if asked.model == "gemma" else models.smollm2()
        with GgufLoader(source) as model:
            write_spread(model, folder / "F16.gguf")
        if "types" in asked.parts:
            print(f"{config().isa}, one thread, millions of weights per CPU second\n")
            show_types(llama_cpp(asked.peer) if asked.peer else None, only, asked.weights, folder)
        if "size" in asked.parts:
            if not asked.peer:
                sys.exit("the table of sizes needs --peer PYTHON")
            print()
            show_sizes(asked.peer, only, folder)


if __name__ == "__main__":
    main()
