"""The first layers on a GPU, the others on the CPU; and what fits a device that is too small."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from ingot.backends import gpu
from ingot.backends.backend import Stage
from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu import Device, GpuBackend, find_device
from ingot.backends.gpu.lowering import Context
from ingot.backends.gpu.weights import MatrixStore
from ingot.backends.reference import Reference
from ingot.backends.split import SplitBackend
from ingot.engine import LoadedModel
from ingot.engine.model.gpu_fit import fit_gpu, make_planner
from ingot.errors import GraphError, MemoryShortageError, ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture
from unit.backends.test_batch_invariance import k_quant_model

HALVES = 1e-2
CONTEXT = 64
LAYERS = 3  # of the tiny model


@dataclass(frozen=True, slots=True)
class SmallDevice(Device):
    """One with little room."""

    room: int = 0

    def free_memory(self) -> int:
        return self.room


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fixture.load("gemma2").write(tmp_path_factory.mktemp("model") / "m.gguf", GgmlType.Q8_0)


@pytest.fixture
def shrink(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Leaves the device room for so many layers, and for one context; says how much."""

    def with_room_for(layers: int) -> int:
        found = find_device()
        room = 1
        if layers:
            with GgufLoader(path) as model:
                graph = build_graph(model, CONTEXT)
                planner = make_planner(graph, model, KvType.F16, found, CONTEXT)
                room = planner.needs(layers).total(-(-CONTEXT // BLOCK_TOKENS))
        small = SmallDevice(*(getattr(found, field.name) for field in fields(found)), room)
        monkeypatch.setattr(gpu, "find_device", lambda _: small)
        return room

    return with_room_for


@pytest.mark.parametrize("layers", [1, 2])
def test_a_split_model(path: Path, layers: int) -> None:
    """A prompt, then a token: what the reference computes. Blocks are of the whole model."""
    ids = np.asarray(Fixture.load("gemma2").token_ids[:4], np.int32)
    told: list[tuple[Stage, int, int]] = []
    with LoadedModel(
        path,
        context=CONTEXT,
        device="cuda",
        gpu_layers=layers,
        progress=lambda *step: told.append(step),
    ) as model:
        assert model.gpu is not None
        assert (model.gpu.layers, model.gpu.of_layers) == (layers, LAYERS)
        assert model.gpu.allocations <= 10
        assert not model.on_gpu
        sequence = model.sequence()
        every = np.arange(3, dtype=np.int32)
        found = [
            model.step([sequence], [ids[:3]], every, ExecutionPhase.PROMPT),
            model.step([sequence], [ids[3:]], every[:1], ExecutionPhase.GENERATION),
        ]
        expected = Reference(model.graph, model.file).forward(ids.tolist())
        bound = HALVES * max(1.0, float(np.abs(expected).max()))
        assert np.abs(np.concatenate(found) - expected).max() <= bound
        for group, kept in enumerate(model.layout.groups):
            block = model.read_block(group, 0)
            assert len(block) == kept.block_bytes
            model.write_block(group, 1, block)
            np.testing.assert_array_equal(model.read_block(group, 1), block)
        sequence.close()
    for stage in (Stage.WEIGHTS, Stage.STEPS):
        steps = [(done, total) for told_stage, done, total in told if told_stage is stage]
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]
        assert len({total for _, total in steps}) == 1
    assert max(done for stage, done, _ in told if stage is Stage.WEIGHTS) == model.gpu.sent


def test_types_that_no_kernel_reads(tmp_path: Path) -> None:
    for type, decoded in ((GgmlType.IQ2_S, ()), (GgmlType.Q8_K, ("q8_k",))):
        path = k_quant_model().write(tmp_path / "m.gguf", type)
        with LoadedModel(path, context=CONTEXT, device="cuda") as model:
            assert model.gpu is not None
            assert model.gpu.decoded == decoded


def test_what_is_saved_of_split_models(tmp_path: Path) -> None:
    """Blocks of q8_0 lie otherwise on a GPU: a text is only for the same split then."""
    path = k_quant_model().write(tmp_path / "m.gguf", GgmlType.Q8_0)
    prints: dict[str, set[str]] = {"f16": set(), "q8_0": set()}
    for kind, found in prints.items():
        for layers in (0, 1, 2):
            with LoadedModel(
                path, context=CONTEXT, device="cuda", gpu_layers=layers, kv_type=kind
            ) as model:
                found.add(model.fingerprint)
    assert [len(found) for found in prints.values()] == [1, 3]


def test_refused_with_both_numbers(path: Path, shrink: Callable[[int], int]) -> None:
    room = shrink(2)
    for asked, remedy in ((None, "gpu_layers=2 would fit"), (LAYERS, "gpu_layers=2 would fit")):
        with pytest.raises(MemoryShortageError, match=rf"and {room / 2**20:.0f} MiB .*{remedy}"):
            LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=asked)
    shrink(0)
    for asked in (None, "auto"):
        with pytest.raises(MemoryShortageError, match="not one layer would fit"):
            LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=asked)


@pytest.mark.parametrize("fitting", [LAYERS, 2, 1, 0])
def test_as_many_as_fit(path: Path, shrink: Callable[[int], int], fitting: int) -> None:
    """On the CPU where not one does."""
    shrink(fitting)
    with LoadedModel(path, context=CONTEXT, device="auto") as model:
        assert (model.gpu.layers if model.gpu else 0) == fitting
        kind = {LAYERS: GpuBackend, 0: type(model._backend)}.get(fitting, SplitBackend)
        assert type(model._backend) is kind
        assert model.pool.sizes[0] >= CONTEXT // BLOCK_TOKENS
    if fitting:
        with LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers="auto") as model:
            assert model.gpu is not None
            assert model.gpu.layers == fitting


def test_the_cache_that_was_asked_for_counts(path: Path, shrink: Callable[[int], int]) -> None:
    shrink(LAYERS)
    LoadedModel(path, context=CONTEXT, device="cuda", cache_tokens=CONTEXT).close()
    with pytest.raises(MemoryShortageError, match="would fit"):
        LoadedModel(path, context=CONTEXT, device="cuda", cache_tokens=100_000_000)


def test_layers_with_states(tmp_path: Path) -> None:
    """A convolution on the GPU, attention and another one on the CPU."""
    fixture = Fixture.load("lfm2").first_layers(3)
    ids = np.asarray(fixture.token_ids[:4], np.int32)
    path = fixture.write(tmp_path / "m.gguf")
    with LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=1) as model:
        assert model.gpu is not None
        sequence = model.sequence()
        every = np.arange(3, dtype=np.int32)
        found = [
            model.step([sequence], [ids[:3]], every, ExecutionPhase.PROMPT),
            model.step([sequence], [ids[3:]], every[:1], ExecutionPhase.GENERATION),
        ]
        expected = Reference(model.graph, model.file).forward(ids.tolist())
        bound = HALVES * max(1.0, float(np.abs(expected).max()))
        assert np.abs(np.concatenate(found) - expected).max() <= bound
        states = len(model.layout.groups) - 1
        last = model.cache.pool.sizes[states] - 1
        block = model.read_block(states, 0)
        model.write_block(states, last, block)
        np.testing.assert_array_equal(model.read_block(states, last), block)
        sequence.close()


def test_the_plan_is_what_is_taken(path: Path) -> None:
    """The pools of a backend, and the longest cache that is said to fit."""
    with GgufLoader(path) as model:
        graph = build_graph(model, CONTEXT)
        planner = make_planner(graph, model, KvType.F16, find_device(), CONTEXT)
        needs = planner.needs(planner.layers)
        fits = [
            fit_gpu(
                graph, model, KvType.F16, find_device(), context=CONTEXT, room=needs.total(blocks)
            )
            for blocks in (2000, 2001)
        ]
    assert [fit.cache_tokens for fit in fits] == [2000 * BLOCK_TOKENS, 2001 * BLOCK_TOKENS]
    with LoadedModel(path, context=CONTEXT, device="cuda", cache_tokens=CONTEXT) as opened:
        assert opened.gpu is not None
        blocks = opened.pool.sizes[0]
        planner = make_planner(
            opened.graph, opened.file, KvType.F16, find_device(), CONTEXT, opened.decode_sequences
        )
        needs = planner.needs(planner.layers)
        beside = needs.weights + needs.steps + blocks * needs.block - opened.gpu.allocated
        assert beside == 256 << 20


@pytest.fixture
def whole_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if more than the residual stream crossed every cut."""

    def refuse(*_: object) -> None:
        raise GraphError("more than one value crosses the cut")

    monkeypatch.setattr("ingot.backends.gpu.planner.cut", refuse)


@pytest.mark.usefixtures("whole_only")
def test_a_model_that_cannot_be_cut(path: Path, shrink: Callable[[int], int]) -> None:
    """It is whole on the GPU, or on the CPU."""
    for asked in (None, "auto"):
        shrink(LAYERS)
        with LoadedModel(path, context=CONTEXT, device="auto", gpu_layers=asked) as model:
            assert model.on_gpu
            assert model.why_cpu is None
        shrink(0)
        with LoadedModel(path, context=CONTEXT, device="auto", gpu_layers=asked) as model:
            assert model.gpu is None
            assert model.placement is not None
            assert "all layers on the CPU: the model takes" in model.placement
        with pytest.raises(MemoryShortageError, match="not one layer would fit"):
            LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=asked)
    with LoadedModel(path, context=CONTEXT, device="auto", gpu_layers=1) as model:
        assert model.why_cpu == "more than one value crosses the cut"
    with pytest.raises(GraphError, match="more than one value"):
        LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=1)


def test_nothing_is_sent_of_what_is_refused(tmp_path: Path) -> None:
    """The CPU's part of a model has no fp8; no kernel reads q4_0."""
    path = k_quant_model().write(tmp_path / "m.gguf", GgmlType.Q8_0)
    sent: list[int] = []
    for kv_type, layers in (("fp8", 1), ("q4_0", None)):
        with pytest.raises(ModelError, match="store"):
            LoadedModel(
                path,
                context=CONTEXT,
                device="cuda",
                gpu_layers=layers,
                kv_type=kv_type,
                progress=lambda _, done, __: sent.append(done),
            )
    assert sent == []
    with GgufLoader(path) as model:
        graph = build_graph(model, CONTEXT)
        with pytest.raises(ModelError, match="cannot store"):
            fit_gpu(graph, model, KvType.Q4_0, find_device(), context=CONTEXT, room=1 << 34)


def test_memory_of_a_model_that_is_refused_halfway(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have it when the CPU takes over."""
    stores: list[weakref.ref[MatrixStore]] = []
    given: list[bool] = []

    def refuse(context: Context) -> None:
        stores.append(weakref.ref(context.matrices))
        raise ModelError("there is no such kernel")

    monkeypatch.setattr("ingot.backends.gpu.backend.lower", refuse)
    monkeypatch.setattr(gpu, "give_back", lambda: given.append(stores[0]() is None))
    with LoadedModel(path, context=CONTEXT, device="auto") as model:
        assert model.why_cpu == "there is no such kernel"
        assert given == [True]
