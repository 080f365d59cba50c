"""Quantization next to llama.cpp's quantizer: bits, error, speed, and what a given size loses.

    python benchmarks/bench_quantize.py types [--peer PYTHON] [--only Q4_K ...] [--weights 100]
    python benchmarks/bench_quantize.py size [--peer PYTHON] [--only Q4_K_M ...]
    python benchmarks/bench_quantize.py file [--peer PYTHON] [--only Q4_K_M ...] [--parameters 1000]

types: the speed and the error of each type. Both quantizers encode the same Gaussian weights on one
thread, piece by piece in turn, until all are done or both had their seconds; CPU time counts, so
that a busy machine disturbs little. The errors are ours divided by llama.cpp's: root mean squares
on Gaussian weights; on matrices of a model (dequantized); on these with an importance matrix, where
each error counts as much as its column. Of several matrices the worst is shown.

size: a model as llama.cpp's mixes, and by `ingot quantize --target-size` in files of the same size,
with one importance matrix. The types are chosen on one text, and the mean KL divergence from the
original is measured on another. Both are in the folder `texts`, and stay as they are: earlier
versions of this project's documentation.

file: how long both take for a whole file of an invented Llama, F16 with a billion Gaussian weights.
Each is a process with as many threads as there are cores; its time ends when the disk has the file.
The error is ours divided by llama.cpp's, root mean squares over the first layer.

The model of the first two is SmolLM2, or Gemma 3 270M (--model gemma), as F16. Its weights lie on
the grid of the type that its file has, and that type would keep them exactly; so each is moved at
random by up to half a step of the grid first, which makes them as even as weights that were never
quantized.

PYTHON is an interpreter with llama-cpp-python (see benchmarks/peer.py). Without it the columns of
llama.cpp stay empty, and there is no table of sizes and none of files.
"""

import argparse
import ctypes
import json
import os
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
from ingot.gguf import GgmlType, GgufLoader, GgufWriter, ValueType
from ingot.gguf.copying import copy_keys, copy_tensor
from ingot.quant import decode, encode
from ingot.quantize import model_shape, plan
from ingot.quantize.imatrix import ImportanceMatrix
from ingot.quantize.mixes import MIXES
from ingot.tokenizer import Tokenizer

TEXTS = Path(__file__).with_name("texts")
CALIBRATION, EVALUATION = TEXTS / "calibration.txt", TEXTS / "evaluation.txt"
CONTEXT = 256  # tokens of a chunk
CALIBRATED, EVALUATED = 24, 10  # chunks
SAMPLE = "blk.{}.ffn_down.weight"  # of the first, a middle and the last layer; rows of whole blocks
ROW = 1024  # of Gaussian weights
PIECE = 1 << 18  # weights that one quantizer encodes before the other does
SECONDS = 3.0  # of each quantizer for a type
STEPS = {"Q4_1": 15, "Q8_0": 254, "Q5_0": 31, "Q4_K": 15, "Q5_K": 31, "Q6_K": 63}  # of a grid
GRID = 32  # weights that share a step
SIZES = ("IQ2_M", "IQ3_M", "Q3_K_M", "IQ4_XS", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K")
FILES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K")
# An invented Llama.
WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY = 2048, 5632, 32, 4, 32000
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
    def rate(self) -> float:
        """Millions of weights per second."""
        return self.weights / self.seconds / 1e6

    @property
    def shown(self) -> str:
        """The same as a text."""
        return f"{self.rate:.1f}"


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
    print("| type | bits | Ingot | llama.cpp | ratio | error | of a model | with importance |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for type in GgmlType:
        if not _native.has_encoder(type) or type is GgmlType.Q8_K:
            continue
        if only and type.name not in only:
            continue
        needs = type.name in NEEDS_IMATRIX
        even = {size: np.ones(size, np.float32) for size in (ROW, real[0][0].shape[1])}
        given = even[ROW] if needs else None
        speeds = [Speed(encoder) for encoder in (on_one_thread, peer) if encoder is not None]
        for speed in speeds:  # the tables that a type needs are made with its first weights
            speed.encode(gaussian[:1], type, given)
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
        rates = [speed.shown for speed in speeds]
        rates += [f"{speeds[0].rate / speeds[1].rate:.1f}x"] if peer is not None else ["", ""]
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


def chunks_of(model: GgufLoader, text: Path, count: int) -> list[NDArray[np.int32]]:
    """The first chunks of a text."""
    tokenizer = Tokenizer.from_metadata(model.metadata)
    found = split_chunks(tokenizer.encode(text.read_bytes()), tokenizer, CONTEXT)
    if len(found) < count:
        raise SystemExit(f"{text} has {len(found)} chunks for this vocabulary; {count} are needed")
    return [np.array(chunk, np.int32) for chunk in found[:count]]


def calibrated(model: GgufLoader) -> ImportanceMatrix:
    chunks = chunks_of(model, CALIBRATION, CALIBRATED)
    sums = sum_inputs(model, chunks, threads=config().threads)
    return ImportanceMatrix.from_sums(
        CALIBRATION, sums, dataset="documentation", chunks=len(chunks)
    )


def show_sizes(python: str, only: Sequence[str], folder: Path) -> None:
    """A row for each mix: KL of llama.cpp's file, and of ours in the same size."""
    original = folder / "F16.gguf"
    names = [name for name in SIZES if not only or name in only]
    with GgufLoader(original) as model:
        imatrix = calibrated(model)
        chunks = chunks_of(model, CALIBRATION, CALIBRATED)
        evaluated = chunks_of(model, EVALUATION, EVALUATED)
        means: dict[str, Any] = {name: mean.ravel() for name, mean in imatrix.means.items()}
        np.savez(folder / "imatrix.npz", **means)
        jobs = [(str(folder / f"{name}.gguf"), MIXES[name].file_type) for name in names]
        subprocess.run(worker(python, original, jobs, imatrix=folder / "imatrix.npz"), check=True)
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


def worker(
    python: str, source: Path, jobs: Sequence[tuple[str, int]], imatrix: Path | None = None
) -> list[str]:
    """The command that has llama.cpp write files."""
    named = "" if imatrix is None else str(imatrix)
    return [
        python, str(WORKER), str(source), named, json.dumps(jobs), str(config().threads)
    ]  # fmt: skip


def write_invented(path: Path, millions: int) -> None:
    """Write a Llama of about so many weights as F16; its tensors are cut from the same numbers."""
    kv_width = WIDTH // HEADS * KV_HEADS
    layer = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (kv_width, WIDTH), "attn_v": (kv_width, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    outer = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
    sizes = [sum(rows * columns for rows, columns in part.values()) for part in (outer, layer)]
    layers = max(1, round((millions * 10**6 - sizes[0]) / sizes[1]))
    writer = GgufWriter(path)
    writer.add("general.architecture", "llama")
    keys = {
        "block_count": layers, "context_length": 4096, "embedding_length": WIDTH,
        "feed_forward_length": INNER, "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS, "rope.dimension_count": WIDTH // HEADS,
    }  # fmt: skip
    for key, number in keys.items():
        writer.add(f"llama.{key}", number)
    writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5, ValueType.FLOAT32)
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.tokens", [f"t{number}" for number in range(VOCABULARY)])
    writer.add("tokenizer.ggml.scores", [0.0] * VOCABULARY, ValueType.FLOAT32)
    writer.add("tokenizer.ggml.token_type", [1] * VOCABULARY, ValueType.INT32)
    random = np.random.default_rng(5).standard_normal(VOCABULARY * WIDTH, np.float32)
    values = (np.float32(0.02) * random).astype(np.float16)
    shapes = {f"{name}.weight": shape for name, shape in outer.items()}
    for number in range(layers):
        shapes |= {f"blk.{number}.{name}.weight": shape for name, shape in layer.items()}
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{number}.{name}.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for name, (rows, columns) in shapes.items():
        writer.add_tensor(name, values[: rows * columns].reshape(rows, columns))
    writer.write()


def show_files(python: str, only: Sequence[str], millions: int, folder: Path) -> None:
    """A row for each mix: seconds of both quantizers for the same file."""
    source, ours, theirs = (folder / f"{name}.gguf" for name in ("invented", "ours", "theirs"))
    write_invented(source, millions)
    ingot = str(Path(sys.executable).with_name("ingot"))
    threads = str(config().threads)
    with GgufLoader(source) as model:
        weights = sum(int(np.prod(tensor.shape)) for tensor in model.tensors.values())
        print(f"{weights / 1e9:.3f} billion weights, {threads} threads, seconds\n")
        print("| mix | bits | Ingot | llama.cpp | ratio | error |\n|---|---:|---:|---:|---:|---:|")
        for name in only or FILES:
            mix = MIXES[name]
            if mix.needs_imatrix:
                sys.exit(
                    f"{name} needs an importance matrix, which an invented model does not have"
                )
            jobs = [(str(theirs), mix.file_type)]
            taken = [
                seconds([ingot, "quantize", str(source), str(ours), name], ours),
                seconds(worker(python, source, jobs), theirs),
            ]
            with GgufLoader(ours) as one, GgufLoader(theirs) as other:
                share = first_layer_error(model, one) / first_layer_error(model, other)
            assert ours.stat().st_size <= 1.001 * theirs.stat().st_size
            row = [
                name, f"{8 * ours.stat().st_size / weights:.2f}", *(f"{t:.1f}" for t in taken),
                f"{taken[1] / taken[0]:.1f}x", f"{share:.3f}",
            ]  # fmt: skip
            print(f"| {' | '.join(row)} |", flush=True)


def seconds(command: Sequence[str], out: Path) -> float:
    """Of a process, until the disk has the file that it writes."""
    out.unlink(missing_ok=True)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with out.open("rb+") as file:
        os.fsync(file.fileno())
    return time.perf_counter() - start


def first_layer_error(model: GgufLoader, other: GgufLoader) -> float:
    """The root of the squared errors of all matrices in the first layer."""
    total = 0.0
    for name, tensor in model.tensors.items():
        if name.startswith("blk.0.") and len(tensor.shape) == 2:
            found = other.tensors[name]
            values = decode(tensor.data, tensor.type), decode(found.data, found.type)
            total += float(np.square(values[0] - values[1], dtype="f8").sum())
    return float(np.sqrt(total))


def divergence(a: Path, b: Path, chunks: Sequence[NDArray[np.int32]]) -> float:
    with LLM(a, context=CONTEXT) as first, LLM(b, context=CONTEXT) as second:
        return compare(first, second, [chunk.tolist() for chunk in chunks]).kl_mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ["types", "size", "file"]
    parser.add_argument("parts", nargs="*", choices=parts, default=parts)
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter with llama-cpp-python")
    parser.add_argument("--only", nargs="+", default=[], help="types, or mixes whose size is taken")
    parser.add_argument("--weights", type=int, default=100, help="millions of Gaussian weights")
    parser.add_argument("--parameters", type=int, default=1000, help="millions, of the file")
    parser.add_argument("--model", choices=["smollm2", "gemma"], default="smollm2")
    parser.add_argument("--folder", type=Path, help="for the files; 4 GB for `file`")
    asked = parser.parse_args()
    only = [name.upper() for name in asked.only]
    with TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        if {"types", "size"} & set(asked.parts):
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
        if "file" in asked.parts:
            if not asked.peer:
                sys.exit("the table of files needs --peer PYTHON")
            print()
            show_files(asked.peer, only, asked.parameters, folder)


if __name__ == "__main__":
    main()
