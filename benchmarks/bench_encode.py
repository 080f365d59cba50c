"""Quantization: speed and error next to llama.cpp's quantizer.

Gaussian weights, one thread each, in turn; the best of several rounds. Speed is in millions of
weights per second on the instruction set in use (INGOT_ISA overrides it). The error is our root
mean square error divided by llama.cpp's. Last, a model of 1.5 billion weights is quantized to Q4_K
on all threads.

    python benchmarks/bench_encode.py

Without llama-cpp-python its columns stay empty.
"""

import ctypes
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.config import config
from ingot.gguf import GgmlType
from ingot.quant import decode, encode

WEIGHTS = 1 << 20
ROW = 256
ROUNDS = 7
MODEL_WEIGHTS = 1_500_000_000
CHUNK = 1 << 24

Encoder = Callable[[NDArray[np.float32], GgmlType], NDArray[np.uint8]]


def llama_cpp() -> Encoder | None:
    """llama.cpp's quantizer without an importance matrix, on one thread."""
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    found = sorted((Path(spec.origin).parent / "lib").glob("libggml-base*"))
    if not found:
        return None
    library = ctypes.CDLL(str(found[0]))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t

    def quantize(weights: NDArray[np.float32], type: GgmlType) -> NDArray[np.uint8]:
        out = np.zeros(weights.size // type.block_size * type.block_bytes, np.uint8)
        library.ggml_quantize_chunk(
            ctypes.c_int(type),
            weights.ctypes.data_as(ctypes.c_void_p),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(0),
            ctypes.c_int64(weights.size // ROW),
            ctypes.c_int64(ROW),
            None,
        )
        return out

    return quantize


def on_one_thread(weights: NDArray[np.float32], type: GgmlType) -> NDArray[np.uint8]:
    return encode(weights, type, threads=1)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def error(weights: NDArray[np.float32], blocks: NDArray[np.uint8], type: GgmlType) -> float:
    difference = weights.astype(np.float64) - decode(blocks, type)
    return float(np.sqrt(np.square(difference).mean()))


def compare(weights: NDArray[np.float32], type: GgmlType, peer: Encoder | None) -> str:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(seconds(lambda: on_one_thread(weights, type)))
        if peer is not None:
            theirs.append(seconds(lambda: peer(weights, type)))
    speed = weights.size / min(ours) / 1e6
    row = f"{type.name:8}{speed:10.0f}"
    if peer is None:
        return row
    peer_speed = weights.size / min(theirs) / 1e6
    peer_error = error(weights, peer(weights, type), type)
    part = error(weights, on_one_thread(weights, type), type) / peer_error if peer_error else 1.0
    return f"{row}{peer_speed:12.0f}{speed / peer_speed:9.1f}x{part:10.4f}"


def encode_model() -> float:
    weights = np.random.default_rng(1).standard_normal(CHUNK, dtype=np.float32)
    start = time.perf_counter()
    for left in range(MODEL_WEIGHTS, 0, -CHUNK):
        encode(weights[: min(left, CHUNK) // ROW * ROW], GgmlType.Q4_K)
    return time.perf_counter() - start


def main() -> None:
    weights = np.random.default_rng(0).standard_normal(WEIGHTS, dtype=np.float32)
    weights *= np.float32(0.02)
    peer = llama_cpp()
    settings = config()
    print(f"{settings.isa}, one thread, millions of weights a second")
    print(f"{'type':8}{'ingot':>10}{'llama.cpp':>12}{'faster':>10}{'error':>10}")
    for type in GgmlType:
        if _native.has_encoder(type) and type is not GgmlType.Q8_K:
            print(compare(weights, type, peer), flush=True)
    took = encode_model()
    print(
        f"{MODEL_WEIGHTS / 1e9} billion weights in Q4_K, {settings.threads} threads: {took:.1f} s"
    )


if __name__ == "__main__":
    main()
