"""Decode and prefill on a GPU, next to llama.cpp's numbers and the limits of the device.

It first writes files of real shapes with random weights (benchmarks/synthetic.py). llama.cpp's
numbers were measured on one H200 (CUDA 13) with files of the same shapes.

    python benchmarks/bench_gpu.py llama3-8b qwen2-1.5b --folder /tmp
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from torch.profiler import ProfilerActivity, profile

import synthetic
from ingot import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan
from ingot.backends.gpu import GpuBackend, find_device
from ingot.backends.gpu.memory import DeviceMemory
from ingot.backends.gpu.sampler import ROW_NUMBERS, DevicePlans, HostPlans, SamplerWork
from ingot.backends.gpu.variants import Kernels
from ingot.engine.model.gpu_fit import make_planner
from ingot.engine.model.loaded_model import LoadedModel
from ingot.engine.model.timed_tokens import timed_tokens

_DEPTH, _LONG = 4096, 8192
_GENERATED = 128
_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Peer:
    """A file's mix of formats, and llama.cpp on an H200: tokens per second."""

    mix: str
    decode: float
    decode_deep: float
    prompt: float
    together: float | None


PEERS = {
    "llama3-8b": Peer("Q4_K_M", 260, 242, 9670, 3200),
    "gpt-oss-20b": Peer("MXFP4", 343, 323, 11210, 1700),
    "qwen2-1.5b": Peer("Q4_K_M", 534, 499, 28460, None),
    "qwen3-30b-a3b": Peer("Q4_K_M", 294, 261, 10950, None),
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


def prompt_rate(model: LoadedModel, tokens: int) -> float:
    """Tokens per second of a prompt, the best of three."""
    timed_tokens(model, prompt=tokens, generated=0)
    return tokens / min(timed_tokens(model, prompt=tokens, generated=0) for _ in range(3))


def read_for_a_token(name: str, model: LoadedModel) -> tuple[float, float]:
    """Bytes of weights, and weights, that one generated token reads."""
    shape = synthetic.SHAPES[name]
    size = weights = 0.0
    for weight in model.graph.weights():
        if weight.name == "token_embd.weight" and not shape.tied:
            continue
        share = shape.used / shape.experts if "_exps" in weight.name else 1.0
        size += model.file.tensors[weight.name].nbytes * share
        weights += prod(weight.shape) * share
    return size, weights


def kernel_times(run: Callable[[], object], steps: int = 4) -> None:
    """Print the kernels of some steps: microseconds and launches of each, for one step."""
    run()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(steps):
            run()
    rows = sorted(found.key_averages(), key=lambda row: -row.device_time_total)
    for row in rows[:11]:
        if row.device_time_total > 0:
            microseconds = row.device_time_total / steps
            print(f"    {microseconds:9.1f} us {row.count / steps:6.0f} x {row.key[:60]}")


def steps_of(model: LoadedModel, sequences: int, depth: int = 0) -> Callable[[], object]:
    """A function that generates one token of each of some sequences."""
    running = [model.sequence() for _ in range(sequences)]
    wanted = np.arange(sequences, dtype=np.int32)
    for sequence in running:
        if depth:
            ids = np.arange(depth, dtype=np.int32)
            model.step([sequence], [ids], wanted[:1], ExecutionPhase.PROMPT)
    tokens = [np.array([i + 1], np.int32) for i in range(sequences)]
    return lambda: model.step(running, tokens, wanted, ExecutionPhase.GENERATION)


def generation_rate(llm: LLM, *, depth: int = 4, sequences: int = 1, **fields: Any) -> float:
    """Tokens per second of texts written together after a prompt each, the best of three."""
    vocabulary = llm.engine.model.graph.vocabulary_size
    prompts = [(np.arange(n, n + depth) * 7919 % vocabulary).tolist() for n in range(sequences)]

    def seconds(tokens: int) -> float:
        started = time.perf_counter()
        requests = [
            llm.stream(prompt, max_tokens=tokens, ignore_eos=True, seed=1, **fields)
            for prompt in prompts
        ]
        for request in requests:
            request.result()
        return time.perf_counter() - started

    seconds(4)  # prompts are in the cache from here on, and the clock of the device is up
    less = min(seconds(1) for _ in range(3))
    rate = (_GENERATED - 1) * sequences / (min(seconds(_GENERATED) for _ in range(3)) - less)
    late = llm.stats.compilations_after_ready + llm.stats.captures_after_ready
    assert late == 0, f"{late} kernels or captures were timed"
    return rate


def report_sampling(vocabulary: int) -> None:
    """Print the time of the kernels that sample a token out of 40."""
    work = SamplerWork.of(DeviceMemory(torch.device("cuda")), vocabulary, _TOGETHER)
    start = Kernels(find_device())
    work.logits.normal_(0, 3)
    for rows in (1, _TOGETHER):
        twin = torch.zeros(rows * ROW_NUMBERS, dtype=torch.int32)
        HostPlans(twin).fill([SamplingPlan(40, 0.95, 3.0, 1, 0.8, 0.5)] * rows)
        plans = DevicePlans.of(twin.cuda())
        print(f"  sampling {rows} of {vocabulary} tokens")
        kernel_times(lambda: work.sample(plans, start))  # noqa: B023 (called here)


def file_of(name: str, folder: Path) -> Path:
    """The file of a shape, made if it is not there."""
    mix = PEERS[name].mix
    path = folder / f"{name}-{mix}.gguf"
    if not path.exists():
        synthetic.write(name, mix, path)
    return path


def report(name: str, path: Path, bandwidth: float, peak: float) -> None:
    """Everything about one shape."""
    peer = PEERS[name]
    context = min(_LONG, synthetic.SHAPES[name].context - 256) + 2 * _GENERATED
    deepest = context - 2 * _GENERATED
    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    tokens = 2 * context + _TOGETHER * 2 * _GENERATED
    with LLM(path, device="cuda", context=context, cache_tokens=tokens) as llm:
        opened = time.perf_counter() - started
        model = llm.engine.model
        backend = model._running
        assert isinstance(backend, GpuBackend)
        size, weights = read_for_a_token(name, model)
        print(f"\n{name} {peer.mix}: {size / 1e9:.2f} GB read for a token")
        print(
            f"  open {opened:.1f} s, sent {backend.uploader.sent / 1e9:.2f} GB at "
            f"{backend.uploader.sent / backend.uploader.seconds / 1e9:.1f} GB/s, "
            f"{backend.memory.allocations} device allocations of "
            f"{backend.memory.allocated / 2**30:.1f} GiB"
        )
        together = generation_rate(llm, sequences=_TOGETHER, temperature=0.0)
        alone = generation_rate(llm, temperature=0.0)
        prompt = prompt_rate(model, _DEPTH)
        rows: list[tuple[str, float, float | None]] = [
            ("decode", alone, peer.decode),
            ("decode, sampled", generation_rate(llm), peer.decode),
            (
                f"decode after {_DEPTH}",
                generation_rate(llm, depth=_DEPTH, temperature=0.0),
                peer.decode_deep,
            ),
            (f"decode after {deepest}", generation_rate(llm, depth=deepest, temperature=0.0), None),
            (f"decode, {_TOGETHER} at once", together, peer.together),
            (
                f"{_TOGETHER} at once, sampled",
                generation_rate(llm, sequences=_TOGETHER),
                peer.together,
            ),
            (f"prompt {_DEPTH}", prompt, peer.prompt),
        ]
        for what, found, theirs in rows:
            beside = f"llama.cpp {theirs:8.0f}  {found / theirs:5.2f}x" if theirs else ""
            print(f"  {what:22} {found:9.1f} t/s  {beside}")
        print(f"  decode: {alone * size / bandwidth:.0%} of the measured bandwidth")
        print(f"  prompt: {prompt * 2 * weights / peak:.0%} of the measured matrix peak")
        print(f"  one token ({1e6 / alone:.0f} us)")
        kernel_times(steps_of(model, 1))
        print(f"  {_TOGETHER} tokens at once ({1e6 * _TOGETHER / together:.0f} us)")
        kernel_times(steps_of(model, _TOGETHER))
        print(f"  a prompt of {_DEPTH} ({1e6 * _DEPTH / prompt:.0f} us)")
        kernel_times(lambda: timed_tokens(model, prompt=_DEPTH, generated=0), 1)
        planner = make_planner(
            model.graph,
            model.file,
            model.layout.type,
            backend.device,
            model.context,
            model.decode_sequences,
        )
        foreseen = planner.needs(planner.layers).total(model.pool.sizes[0])
        taken = torch.cuda.max_memory_allocated()
        print(f"  memory: {foreseen / 2**30:.2f} GiB foreseen, {taken / 2**30:.2f} GiB at most")
        report_sampling(backend.vocabulary)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", help=f"of {', '.join(PEERS)}; default: all of them")
    parser.add_argument("--folder", type=Path, default=Path("build"))
    options = parser.parse_args()
    bandwidth, peak = copy_bandwidth(), matrix_peak()
    print(
        f"{torch.cuda.get_device_name()}: copies {bandwidth / 1e12:.2f} TB/s, half-precision "
        f"products {peak / 1e12:.0f} TFLOP/s; torch {torch.__version__}, triton "
        f"{triton.__version__}"
    )
    for name in options.shapes or PEERS:
        path = file_of(name, options.folder)
        report(name, path, bandwidth, peak)


if __name__ == "__main__":
    main()
