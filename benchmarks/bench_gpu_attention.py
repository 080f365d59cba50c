"""Attention of decode steps on a GPU: many short texts, many long ones, a single one.

    python benchmarks/bench_gpu_attention.py --folder /tmp

It writes four layers of an 8B model with random weights, and decodes texts after prompts. For each
load it prints the microseconds of a layer: of attention, with the rate at which it reads keys and
values, and of the kernel that joins the parts of a text's past.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch.profiler import ProfilerActivity, profile

import synthetic
from ingot import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.engine.model.loaded_model import LoadedModel

_LAYERS, _STEPS = 4, 4
_SHAPE = replace(synthetic.SHAPES["llama3-8b"], layers=_LAYERS)
_LOADS = ((256, 192), (256, 1500), (64, 192), (1, 64), (1, 4000))  # texts, tokens of each
_KERNELS = ("attend_generation", "join_parts")


def decode_step(model: LoadedModel, texts: int, depth: int) -> Iterator[Callable[[], object]]:
    """A step that decodes a token of each of some texts, which end afterwards."""
    running = [model.sequence() for _ in range(texts)]
    wanted = np.arange(texts, dtype=np.int32)
    for sequence in running:
        ids = np.arange(depth, dtype=np.int32)
        model.step([sequence], [ids], wanted[:1], ExecutionPhase.PROMPT)
    tokens = [np.array([number + 1], np.int32) for number in range(texts)]
    yield lambda: model.step(running, tokens, wanted, ExecutionPhase.GENERATION)
    for sequence in running:
        sequence.close()


def kernel_seconds(step: Callable[[], object]) -> dict[str, float]:
    """Seconds of a layer in each of the kernels."""
    step()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(_STEPS):
            step()
    seconds = dict.fromkeys(_KERNELS, 0.0)
    for row in found.key_averages():
        for name in _KERNELS:
            if name in row.key:
                seconds[name] += row.device_time_total / 1e6 / _STEPS / _LAYERS
    return seconds


def report(path: Path) -> None:
    """All loads."""
    most = max(texts for texts, _ in _LOADS)
    tokens = max(texts * (depth + 64) for texts, depth in _LOADS)
    with LLM(path, device="cuda", context=4096, max_running=most, cache_tokens=tokens) as llm:
        for texts, depth in _LOADS:
            for step in decode_step(llm.engine.model, texts, depth):
                attend, join = kernel_seconds(step).values()
            read = texts * depth * _SHAPE.kv_heads * _SHAPE.head * 2 * 2  # keys and values, halves
            print(
                f"  {texts:4} texts of {depth:5} tokens: attention {1e6 * attend:6.1f} us "
                f"({read / attend / 1e12:.2f} TB/s), joining {1e6 * join:5.1f} us",
                flush=True,
            )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build"))
    options = parser.parse_args()
    name = f"llama3-8b-{_LAYERS}-layers"
    synthetic.MODELS[name] = synthetic.model_of(_SHAPE)
    path = options.folder / f"{name}-Q4_K_M.gguf"
    if not path.exists():
        synthetic.write(name, "Q4_K_M", path)
    report(path)


if __name__ == "__main__":
    main()
