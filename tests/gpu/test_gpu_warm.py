"""Nothing is compiled or captured after a model was opened, whatever the requests are.

The compiler is stood in for by a set of what Triton would compile: launches are noted and not run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from gpu.gpu_runner import GpuRunner
from gpu.kernel_cases import cases
from ingot.api import LLM
from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu import find_device
from ingot.backends.gpu.buckets import decode_buckets, prompt_buckets
from ingot.backends.gpu.variants import Kernels
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture
from tiny_adapters import TinyModel

PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION

interpreted = pytest.mark.skipif(
    not find_device().interpreted, reason="a device counts for itself: the other tests look there"
)


@dataclass
class Noted:
    """What a compiler for sm_90 would be asked for."""

    variants: set[tuple[str, str]] = field(default_factory=set)
    _binders: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, kernel: Any, grid: tuple[int, ...], **arguments: Any) -> None:
        assert all(size > 0 for size in grid)
        name = kernel.fn.__name__
        if name not in self._binders:
            made: Any = JITFunction(kernel.fn, do_not_specialize=kernel.kwargs["do_not_specialize"])
            backend = make_backend(GPUTarget("cuda", 90, 32))
            bind = create_function_from_signature(made.signature, made.params, backend)
            self._binders[name] = bind
        _, specialization, options = self._binders[name](**arguments)
        self.variants.add((name, f"{specialization} {options}"))


@pytest.fixture(params=["llama", "qwen3moe"])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GpuRunner]:
    path = Fixture.load(request.param).write(tmp_path / "m.gguf", GgmlType.Q8_0)
    with GgufLoader(path) as model:
        yield GpuRunner(
            build_graph(model, 1024),
            model,
            kv_type=KvType.F16,
            positions=1024,
            sequences=64,
            max_tokens=1024,
        )


@interpreted
def test_a_mixture_of_batches_compiles_nothing(
    runner: GpuRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of any length, alone and together; decode of any number of texts; guesses."""
    ready, asked = Noted(), Noted()
    for run in runner.backend.empty_steps(ready):
        run()
    monkeypatch.setattr(Kernels, "__call__", lambda _, *args, **named: asked(*args, **named))
    before = runner.backend.prepared
    number = 0
    for lengths in (
        (1,),
        (2,),
        (7,),
        (16, 1),
        (31, 33, 5),
        (100,),
        (128,),
        (129,),
        (300, 3),
        (513,),
    ):
        texts = {number + place: [1] * length for place, length in enumerate(lengths)}
        number += len(lengths)
        runner.step(texts)
    for count in (1, 2, 3, 5, 8, number):
        runner.step({name: [1] for name in range(count)}, GENERATION)
    for count in (1, 3):
        runner.step({name: [1] * (2 + name) for name in range(count)}, GENERATION)
    for _ in range(40):  # very short ones: more tiles of queries than a captured step has
        runner.step({number: [1]})
        number += 1
    assert len(asked.variants) > 5
    assert asked.variants <= ready.variants
    assert runner.backend.prepared == before


@interpreted
def test_batches_with_adapters_compile_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts, decode steps and guesses ask for what was listed before the adapter was there."""
    model = TinyModel(tmp_path)
    runner = GpuRunner(
        model.graph, model.file, kv_type=KvType.F16, positions=256, sequences=4, max_tokens=256
    )
    backend, ready, asked = runner.backend, Noted(), Noted()
    memory = backend._bank.room_for(4, None)
    replay = backend._adapted._make(backend.graphs, adapters=memory)
    backend._adapted._launch(replay, memory, ready)
    backend.attach(0, model.adapter(rank=3))
    monkeypatch.setattr(Kernels, "__call__", lambda _, *args, **named: asked(*args, **named))
    for number, length in enumerate((1, 2, 7, 16, 33, 100, 129, 200)):
        runner.step({number: [1] * length}, adapters={number: (0, 1.0)})
    runner.step({0: [1], 1: [1, 2]}, GENERATION, adapters={0: (0, 1.0), 1: None})
    runner.step({0: [1], 1: [1]}, GENERATION, adapters={0: (0, 1.0), 1: None})
    assert any("adapter" in name for name, _ in asked.variants)
    assert asked.variants <= ready.variants


@interpreted
def test_sizes_of_batches_ask_for_no_other_kernel() -> None:
    """Whatever a number of tokens or pairs is: 1, a multiple of 16, or neither."""
    found = 0
    for case in cases(assembly=True):
        counted = {"tokens", "pairs", "most"} & set(case.arguments)
        numbers = {name for name in counted if isinstance(case.arguments[name], int)}
        noted = Noted()
        for size in (1, 16, 7):
            sized = {**case.ordered(ahead=True).arguments, **dict.fromkeys(numbers, size)}
            noted(case.kernel, (1,), **sized)
        assert len(noted.variants) == 1, case.name
        found += len(numbers) > 0
    assert found > 10


def test_buckets() -> None:
    for most in (1, 3, 64, 100, 1024, 4096):
        for buckets in (decode_buckets(min(most, 1024)), prompt_buckets(most)):
            assert buckets == sorted(set(buckets))
            assert buckets[-1] == min(most, buckets[-1])
    assert prompt_buckets(4096)[-1] == 4096
    assert decode_buckets(100) == [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 100]


def test_requests_compile_and_capture_nothing(tmp_path: Path) -> None:
    """As the engine counts it, on a device too; texts are those that a CPU writes."""
    path = Fixture.load("llama").write(tmp_path / "m.gguf", GgmlType.Q8_0)
    ask = {"max_tokens": 2, "temperature": 0.0, "ignore_eos": True}
    prompts = [[1, 2, 3], [5], [7, 8, 9, 10, 11]]
    with LLM(path, context=64, precision="exact") as cpu:
        expected = [cpu.generate(prompt, **ask).token_ids for prompt in prompts]
    with LLM(path, context=64, device="cuda", max_running=100) as llm:
        opened = llm.stats
        assert opened.captures > 0
        found = [completion.token_ids for completion in llm.batch(prompts, progress=False, **ask)]
        stats = llm.stats
    assert found == expected
    assert (stats.compilations_after_ready, stats.captures_after_ready) == (0, 0)
    assert (stats.compilations, stats.captures) == (opened.compilations, opened.captures)


def test_padded_prompts_are_what_they_are_alone(tmp_path: Path) -> None:
    """A chunk that is filled up to its bucket, beside one that is launched kernel by kernel."""
    path = Fixture.load("llama").write(tmp_path / "m.gguf", GgmlType.Q8_0)
    ids = Fixture.load("llama").token_ids[:5]
    with GgufLoader(path) as model:
        graph = build_graph(model, 64)
        runner = GpuRunner(graph, model, kv_type=KvType.F16, positions=64, sequences=2)
        captured = runner.step({"a": ids})["a"]
        runner.backend._prompts._buckets.clear()
        alone = runner.step({"b": ids})["b"]
    np.testing.assert_array_equal(captured, alone)
