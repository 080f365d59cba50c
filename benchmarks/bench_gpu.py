"""Generation and prompts on a GPU, beside llama.cpp's numbers and the device's own limits.

Files of real shapes with random weights are made first (benchmarks/synthetic.py). llama.cpp's
numbers were measured on one H200 (CUDA 13) on files of the same shapes.

    python benchmarks/bench_gpu.py llama3-8b qwen2-1.5b --folder /tmp
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import synthetic
from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu import GpuBackend
from ingot.engine import LoadedModel
from ingot.engine.timed import timed_tokens

_MIX = "Q4_K_M"
_DEPTH = 4096
_GENERATED = 128
_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Peer:
    """llama.cpp on an H200: tokens per second."""

    decode: float
    decode_deep: float
    prompt: float
    together: float | None


PEERS = {
    "llama3-8b": Peer(260, 242, 9670, 3200),
    "qwen2-1.5b": Peer(534, 499, 28460, None),
}


def median_seconds(run: Callable[[], object], repeat: int = 9) -> float:
    """Of a piece of work on the device."""
    run()
    times = []
    for _ in range(repeat):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def copy_bandwidth() -> float:
    """Bytes per second read and written by a large copy."""
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return 2 * int(source.nbytes) / median_seconds(lambda: target.copy_(source))


def matrix_peak() -> float:
    """Operations per second of a large half-precision product."""
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    return 2 * size**3 / median_seconds(lambda: a @ b)


def rate(model: LoadedModel, *, prompt: int, generated: int, depth: int, sequences: int) -> float:
    """Tokens per second, the best of three."""
    arguments = {"prompt": prompt, "generated": generated, "depth": depth, "sequences": sequences}
    timed_tokens(model, **arguments)
    best = min(timed_tokens(model, **arguments) for _ in range(3))
    return (prompt + generated) * sequences / best


def kernel_times(model: LoadedModel) -> list[tuple[str, int, float]]:
    """Name, launches and microseconds of the kernels of one generated token."""
    sequence = model.sequence()
    token, wanted = np.array([1], np.int32), np.array([0], np.int32)
    steps = 8
    try:
        model.step([sequence], [token], wanted, ExecutionPhase.GENERATION)
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(steps):
                model.step([sequence], [token], wanted, ExecutionPhase.GENERATION)
    finally:
        sequence.close()
    rows = [
        (item.key, item.count // steps, item.device_time_total / steps)
        for item in found.key_averages()
        if item.device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row[2])


def report(name: str, folder: Path, bandwidth: float, peak: float) -> None:
    """Everything about one shape."""
    path = folder / f"{name}-{_MIX}.gguf"
    if not path.exists():
        synthetic.write(name, _MIX, path)
    started = time.perf_counter()
    model = LoadedModel(
        path,
        device="cuda",
        context=_DEPTH + 2 * _GENERATED,
        cache_tokens=(_TOGETHER + 1) * (_DEPTH + 2 * _GENERATED),
    )
    opened = time.perf_counter() - started
    backend = model._backend
    assert isinstance(backend, GpuBackend)
    size = sum(
        model.file.tensors[weight.name].nbytes
        for weight in model.graph.weights()
        if weight.name != "token_embd.weight" or synthetic.SHAPES[name].tied
    )
    weights = sum(
        int(np.prod(weight.shape)) for weight in model.graph.weights() if len(weight.shape) == 2
    )
    print(f"\n{name} {_MIX}: {size / 1e9:.2f} GB read for a token")
    print(
        f"  open {opened:.1f} s, sent {backend.uploader.sent / 1e9:.2f} GB at "
        f"{backend.uploader.sent / backend.uploader.seconds / 1e9:.1f} GB/s, "
        f"{backend.memory.allocations} device allocations of "
        f"{backend.memory.allocated / 2**30:.1f} GiB"
    )
    peer = PEERS[name]
    rows: list[tuple[str, float, float | None]] = [
        ("decode", rate(model, prompt=0, generated=_GENERATED, depth=0, sequences=1), peer.decode),
        (
            f"decode after {_DEPTH}",
            rate(model, prompt=0, generated=_GENERATED, depth=_DEPTH, sequences=1),
            peer.decode_deep,
        ),
        (
            f"decode, {_TOGETHER} at once",
            rate(model, prompt=0, generated=_GENERATED, depth=0, sequences=_TOGETHER),
            peer.together,
        ),
        (
            f"prompt {_DEPTH}",
            rate(model, prompt=_DEPTH, generated=0, depth=0, sequences=1),
            peer.prompt,
        ),
    ]
    for what, found, theirs in rows:
        beside = f"llama.cpp {theirs:8.0f}  {found / theirs:5.2f}x" if theirs else ""
        print(f"  {what:22} {found:9.1f} t/s  {beside}")
    print(f"  decode: {rows[0][1] * size / bandwidth:.0%} of the measured bandwidth")
    print(f"  prompt: {rows[3][1] * 2 * weights / peak:.0%} of the measured matrix peak")
    for kernel, count, microseconds in kernel_times(model)[:12]:
        print(f"    {microseconds:8.1f} us {count:5} x {kernel[:60]}")
    model.close()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", default=list(PEERS), choices=PEERS)
    parser.add_argument("--folder", type=Path, default=Path("build"))
    options = parser.parse_args()
    bandwidth, peak = copy_bandwidth(), matrix_peak()
    print(
        f"{torch.cuda.get_device_name()}: copies {bandwidth / 1e12:.2f} TB/s, "
        f"half-precision products {peak / 1e12:.0f} TFLOP/s, torch {torch.__version__}"
    )
    for name in options.shapes:
        report(name, options.folder, bandwidth, peak)


if __name__ == "__main__":
    main()
