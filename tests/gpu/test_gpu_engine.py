"""The engine on a GPU: its cache, saved and shared texts, several requests at once."""

import gc
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu.gpu_runner import GpuRunner
from ingot.api import LLM
from ingot.backends import gpu
from ingot.backends.gpu import Device, GpuBackend, GpuPlan, find_device
from ingot.backends.gpu.device import CAPTURING
from ingot.backends.gpu.lowering import Program
from ingot.backends.gpu.memory import DeviceMemory
from ingot.engine.chunk_sizes import ChunkSizes
from ingot.engine.model.plan import plan_model
from ingot.engine.options import EngineOptions, Speculation
from ingot.engine.process import EngineClient
from ingot.errors import MemoryShortageError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from ingot.server.open_model import has_own_process, open_model
from ingot.server.options import ServedModel
from models.tiny_models import Fixture
from tiny_llama import write_tiny_llama

on_a_device = pytest.mark.skipif(
    find_device().interpreted, reason="the interpreter takes seconds for a token"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fixture.load("llama").write(tmp_path_factory.mktemp("model") / "m.gguf", GgmlType.Q8_0)


@pytest.mark.parametrize("kv_type", [KvType.F16, KvType.FP8])
def test_blocks_of_the_cache(path: Path, kv_type: KvType) -> None:
    with GgufLoader(path) as model:
        backend = GpuRunner(build_graph(model, 64), model, kv_type=kv_type, positions=64).backend
        size = backend.layout.groups[0].block_bytes
        data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        data.flags.writeable = False
        backend.write_block(0, 1, data)
        backend.copy_block(0, 1, 0)
        np.testing.assert_array_equal(backend.read_block(0, 0), data)
        np.testing.assert_array_equal(backend.read_block(0, 1), data)


class SmallDevice(Device):
    """One that is nearly full."""

    def free_memory(self) -> int:
        return 1 << 16


@pytest.mark.parametrize("place", ["memory.DeviceMemory.pool", "upload.Uploader.receive"])
def test_memory_that_others_took(path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Since the plan was made: of a pool, or of what is on its way to be packed."""
    pool = DeviceMemory.pool

    def taken(self: Any, size: int) -> Any:
        if isinstance(self, DeviceMemory) and self.device.type == "meta":
            return pool(self, size)  # the plan
        raise torch.OutOfMemoryError

    monkeypatch.setattr(f"ingot.backends.gpu.{place}", taken)
    with pytest.raises(MemoryShortageError, match="another program has"):
        LLM(path, context=64, device="cuda")


class OneOfTwo(Device):
    """A device that is not the one that threads have chosen when they begin."""

    @contextmanager
    def chosen(self) -> Iterator[None]:
        CHOSEN.set(True)
        yield
        CHOSEN.set(False)


CHOSEN: ContextVar[bool] = ContextVar("CHOSEN", default=False)


def test_launches_are_on_the_device(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread runs a step, and whatever device it has chosen itself."""
    found = find_device()
    device = OneOfTwo(*(getattr(found, field.name) for field in fields(found)))
    monkeypatch.setattr(gpu, "find_device", lambda _: device)
    run, runs = Program.run, []

    def watched(self: Program, *arguments: Any) -> None:
        runs.append(CHOSEN.get())
        run(self, *arguments)

    monkeypatch.setattr(Program, "run", watched)
    with LLM(path, context=64, device="cuda") as llm:
        llm.generate([1, 2], max_tokens=2, temperature=0)
    assert len(runs) > 2
    assert all(runs)


def test_chunks_follow_what_steps_took(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless their size was asked for."""
    seen: list[tuple[str, int, bool]] = []
    for name in ("saw_decode", "saw_chunk"):
        monkeypatch.setattr(
            ChunkSizes,
            name,
            lambda _, tokens, seconds, name=name: seen.append((name, tokens, seconds > 0)),
        )
    with LLM(path, context=64, device="cuda", max_running=1) as llm:
        llm.generate([1, 2, 3], max_tokens=2, temperature=0)
    assert seen == [("saw_chunk", 3, True), ("saw_decode", 1, True)]
    with LLM(path, context=64, device="cuda", max_running=1, chunk_tokens=16) as llm:
        llm.generate([1, 2, 3], max_tokens=2, temperature=0)
    assert len(seen) == 2


def test_memory_is_free_when_a_model_is_closed(path: Path) -> None:
    """At once, without waiting for the garbage collector."""
    gc.disable()
    try:
        with LLM(path, context=64, device="cuda") as llm:
            llm.generate([1, 2], max_tokens=2)
            backend = weakref.ref(llm.engine.model._running)
            assert backend() is not None
        assert backend() is None
    finally:
        gc.enable()


def test_too_little_memory_is_foreseen(path: Path) -> None:
    found = find_device()
    small = SmallDevice(*(getattr(found, field.name) for field in fields(found)))
    with GgufLoader(path) as model:
        graph = build_graph(model, 64)
        layout = KvLayout.of(graph.kv_layers, KvType.F16)
        plan = GpuPlan.of(graph, model, layout, small, context=64, tokens=64)
        with pytest.raises(MemoryShortageError, match=r"takes \d+ MiB of device memory, and 0 MiB"):
            GpuBackend(plan, model, blocks=2)


def test_nothing_is_given_back_during_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another model, in another thread: PyTorch does not allow it. Nobody waits."""
    given: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given.append(1))
    with CAPTURING:
        gpu.give_back()
    assert given == []
    gpu.give_back()
    assert given == [1]


@pytest.mark.parametrize("least", [1, 1 << 30])
def test_auto_that_comes_to_a_gpu_has_a_process_for_large_models(
    path: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """In a server; what is large is set to a byte."""
    monkeypatch.setattr("ingot.server.open_model._SMALL_MODEL", least)
    options = EngineOptions(device="auto", context=32, max_running=1)
    model = ServedModel(name="m", path=path, engine=options)
    plan = plan_model(path, options)
    assert plan.on_gpu
    assert not plan_model(path, replace(options, gpu_layers=0)).on_gpu
    if least > 1:
        assert not has_own_process(options, plan)
        return
    said: list[object] = []
    with open_model(model, plan, said.append, said.append) as llm:
        assert isinstance(llm.engine, EngineClient)
        assert llm.engine.model.on_gpu


@on_a_device
@pytest.mark.parametrize("kv_type", ["f16", "fp8"])
def test_saved_text(path: Path, kv_type: str, tmp_path: Path) -> None:
    ids = Fixture.load("llama").token_ids
    with LLM(path, context=128, device="cuda", kv_type=kv_type) as llm:
        expected = llm.generate(ids, max_tokens=8, temperature=0).token_ids
        llm.engine.save(ids, tmp_path / "text")
    with LLM(path, context=128, device="cuda", kv_type=kv_type) as llm:
        restored = llm.engine.restore(tmp_path / "text")
        assert len(restored) >= 32
        assert llm.generate(ids, max_tokens=8, temperature=0).token_ids == expected
        assert llm.engine.stats.reused_tokens >= 32


@on_a_device
def test_fork(path: Path) -> None:
    ids = Fixture.load("llama").token_ids
    with LLM(path, context=128, device="cuda") as llm:
        expected = llm.generate(ids, max_tokens=8, temperature=0).token_ids
        request = llm.stream(ids, max_tokens=8, temperature=0)
        next(request)
        fork = request.fork()
        assert request.result().token_ids == fork.result().token_ids == expected


@on_a_device
@pytest.mark.parametrize("way", ["ngram", "auto"])
def test_guesses_change_nothing(path: Path, way: Speculation) -> None:
    ids = Fixture.load("llama").token_ids
    with LLM(path, context=128, device="cuda") as llm:
        expected = llm.generate(ids, max_tokens=24, temperature=0).token_ids
    with LLM(path, context=128, device="cuda", speculation=way) as llm:
        assert llm.generate(ids, max_tokens=24, temperature=0).token_ids == expected


CHOICES: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.2},
    {"temperature": 2.0, "top_k": 256, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 1.2, "top_p": 0.5, "ignore_eos": True},
    {"temperature": 1.2, "repeat_penalty": 1.3, "frequency_penalty": 0.2},
    {"temperature": 1.2, "top_k": 0},
]


@pytest.mark.parametrize("count", [2] if find_device().interpreted else [3, len(CHOICES)])
def test_the_device_sampler(tmp_path: Path, count: int) -> None:
    """The sampler chains give the same tokens from the device's logits, whoever runs ahead."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    texts, most = (count, 3) if find_device().interpreted else (3 * count, 30)

    def written(llm: LLM) -> list[tuple[int, ...]]:
        requests = [
            llm.stream([1, 2, n], max_tokens=most + n, seed=n, **CHOICES[n % count])
            for n in range(texts)
        ]
        return [request.result().token_ids for request in requests]

    with LLM(path, context=64, device="cuda") as llm:
        found = written(llm)
    with LLM(path, context=64, device="cuda") as llm:
        assert llm.engine.model.device_sampler is not None
        llm.engine.model.device_sampler = None  # and all logits go to the host
        assert written(llm) == found
    assert len(set(found)) == texts


@on_a_device
def test_a_gpu_runs_as_many_as_its_memory_has_room_for(path: Path) -> None:
    with LLM(path, context=64, device="cuda") as llm:
        assert llm.engine.max_running == llm.engine.model.decode_sequences == 256


@on_a_device
@pytest.mark.parametrize("engine_process", [False, True])
def test_512_requests_of_which_half_are_dropped_leave_no_block(
    path: Path, *, engine_process: bool
) -> None:
    with LLM(
        path, context=128, device="cuda", max_running=512, engine_process=engine_process
    ) as llm:
        expected = llm.generate([5, 6, 7], max_tokens=40, temperature=0, ignore_eos=True).token_ids
        requests = [
            llm.stream([5, 6, 7], max_tokens=40, temperature=0, ignore_eos=True, reuse=False)
            for _ in range(512)
        ]
        next(requests[0])
        for request in requests[::2]:
            request.cancel()
        assert all(request.result(120).token_ids == expected for request in requests[1::2])
        end = time.monotonic() + 120
        while (stats := llm.stats).running or stats.waiting or stats.blocks_held:
            assert time.monotonic() < end, stats
            time.sleep(0.01)
        assert stats.captures_after_ready == stats.compilations_after_ready == 0
