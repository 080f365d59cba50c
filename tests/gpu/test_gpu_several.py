"""The layers of a model on several GPUs: the same bits as on one, and errors that name the GPU.

In the interpreter all of them are the CPU, with names and free memory of their own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.api import LLM
from ingot.arrays import Logits
from ingot.backends import gpu
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import Started
from ingot.backends.gpu import Device, GpuChain, find_device
from ingot.backends.gpu.lowering import Program
from ingot.backends.split import SplitBackend
from ingot.engine import LoadedModel
from ingot.engine.model.gpu_split import SplitPlanner
from ingot.engine.model.plan import plan_model
from ingot.engine.options import EngineOptions
from ingot.errors import ConfigError, MemoryShortageError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture
from tiny_adapters import write_random_adapter
from tiny_llama import write_tiny_llama

pytestmark = pytest.mark.skipif(
    not find_device().interpreted, reason="this machine may have one GPU alone"
)
CONTEXT = 64
PROMPT, GENERATION = ExecutionPhase.PROMPT, ExecutionPhase.GENERATION


@dataclass(frozen=True, slots=True)
class Card(Device):
    """One of several; it notes when it is chosen."""

    room: int = 1 << 34

    def free_memory(self) -> int:
        return self.room

    @contextmanager
    def chosen(self) -> Iterator[None]:
        CHOSEN.append(self.name)
        yield
        CHOSEN.pop()


CHOSEN: list[str] = []
Rooms = Callable[..., None]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """Cards with that many bytes free."""

    def with_room(*rooms: int) -> None:
        found = find_device()
        values = {field.name: getattr(found, field.name) for field in fields(Device)}
        monkeypatch.setattr(
            gpu,
            "find_device",
            lambda index=None: Card(
                **{**values, "name": f"card {index or 0}"}, room=rooms[index or 0]
            ),
        )

    with_room(*[1 << 34] * 4)
    return with_room


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Fixture.load("gemma2").write(tmp_path_factory.mktemp("model") / "m.gguf", GgmlType.Q8_0)


def steps(model: LoadedModel, ids: Sequence[int]) -> list[Logits]:
    """A prompt, and two tokens after it."""
    tokens = np.asarray(ids, np.int32)
    sequence = model.sequence()
    every = np.arange(len(tokens) - 2, dtype=np.int32)
    found = [model.step([sequence], [tokens[:-2]], every, PROMPT)]
    found += [
        model.step([sequence], [tokens[at : at + 1 or None]], every[:1], GENERATION)
        for at in (-2, -1)
    ]
    sequence.close()
    return found


@pytest.mark.parametrize(
    ("name", "split"),
    [("gemma2", (1, 1, 1)), ("gemma2", (0.7, 0.3)), ("qwen3moe", (1, 1)), ("lfm2", (1, 2))],
)
@pytest.mark.usefixtures("cards")
def test_the_same_bits_as_one_gpu(name: str, split: Sequence[float], tmp_path: Path) -> None:
    fixture = Fixture.load(name).first_layers(3)
    path, ids = fixture.write(tmp_path / "m.gguf"), fixture.token_ids[:6]
    with LoadedModel(path, context=CONTEXT, device="cuda", sequences=2) as model:
        expected = steps(model, ids)
    with LoadedModel(path, context=CONTEXT, device="cuda", sequences=2, gpu_split=split) as model:
        assert isinstance(model._backend, GpuChain)
        assert model.on_gpu
        assert model.gpu is not None
        assert model.gpu.gpus == len(split)
        assert model.gpu.device == ", ".join(f"card {index}" for index in range(len(split)))
        assert model.prepared.captures > 0
        for found, whole in zip(steps(model, ids), expected, strict=True):
            np.testing.assert_array_equal(found, whole)
        for group, kept in enumerate(model.layout.groups):
            block = model.read_block(group, 0)
            assert len(block) == kept.block_bytes
            model.write_block(group, 1, block)
            np.testing.assert_array_equal(model.read_block(group, 1), block)


def written(llm: LLM) -> list[tuple[int, ...]]:
    """Greedy and sampled texts beside each other; the host samples those of the last one."""
    asked: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.2, "seed": 1},
        {"temperature": 1.2, "seed": 2, "repeat_penalty": 1.2},
        {"temperature": 1.2, "seed": 3, "top_k": 0},
    ]
    requests = [
        llm.stream([1, 2, number], max_tokens=3 + number, **fields)
        for number, fields in enumerate(asked)
    ]
    return [request.result().token_ids for request in requests]


@pytest.mark.usefixtures("cards")
def test_the_engine_over_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are sampled on the last GPU, steps run ahead, and every launch is on its own GPU."""
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    adapter = write_random_adapter(tmp_path / "a.gguf", seed=1)
    options: dict[str, Any] = {"context": 64, "device": "cuda", "max_running": 4}
    with LLM(path, adapters={"a": adapter}, **options) as llm:
        expected = written(llm)
        adapted = llm.generate([1, 2], max_tokens=3, temperature=0, adapter="a").token_ids
    run, devices = Program.run, dict[int, set[str]]()
    ahead: list[bool] = []
    start = GpuChain.start

    def watched(self: Program, *arguments: Any) -> None:
        devices.setdefault(id(self), set()).add(CHOSEN[-1])
        run(self, *arguments)

    def noted(self: GpuChain, batch: Batch, plans: Any) -> Started:
        ahead.append(bool((batch.ids < 0).any()))
        return start(self, batch, plans)

    monkeypatch.setattr(Program, "run", watched)
    monkeypatch.setattr(GpuChain, "start", noted)
    with LLM(path, adapters={"a": adapter}, gpu_split=(1, 1), **options) as llm:
        model = llm.engine.model
        assert model.device_sampler is model._backend
        assert llm.engine.max_running == model.decode_sequences == 4
        assert written(llm) == expected
        generated = llm.generate([1, 2], max_tokens=3, temperature=0, adapter="a").token_ids
        assert generated == adapted
        assert llm.stats.captures_after_ready == 0
    assert any(ahead)
    assert sorted(devices.values(), key=str) == [{"card 0"}, {"card 1"}]


@pytest.mark.usefixtures("cards")
def test_the_rest_on_the_cpu(path: Path) -> None:
    ids = Fixture.load("gemma2").token_ids[:5]
    with LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=2) as model:
        expected = steps(model, ids)
    with LoadedModel(path, context=CONTEXT, device="cuda", gpu_layers=2, gpu_split=[1, 1]) as model:
        assert isinstance(model._backend, SplitBackend)
        assert not isinstance(model._backend, GpuChain)
        assert model.gpu is not None
        assert (model.gpu.layers, model.gpu.gpus, model.on_gpu) == (2, 2, False)
        for found, whole in zip(steps(model, ids), expected, strict=True):
            np.testing.assert_array_equal(found, whole)
        block = model.read_block(0, 0)
        assert len(block) == model.layout.groups[0].block_bytes
        model.write_block(0, 1, block)
        np.testing.assert_array_equal(model.read_block(0, 1), block)


def needs(path: Path, split: Sequence[float], layers: int) -> list[int]:
    """The bytes that the parts take with a cache of one context."""
    with GgufLoader(path) as model:
        graph = build_graph(model, CONTEXT)
        planner = SplitPlanner(
            graph, model, KvType.F16, [find_device()] * len(split), split, context=CONTEXT
        )
        return [plan.needs.total(CONTEXT // BLOCK_TOKENS) for plan in planner.plans(layers)]


def test_the_gpu_that_lacks_memory_is_named(path: Path, cards: Rooms) -> None:
    split = (2, 1)
    first, second = needs(path, split, 3)
    cards(first, second)
    LoadedModel(path, context=CONTEXT, device="cuda", gpu_split=split).close()
    for rooms, said in (
        ((first - 1, second), r"card 0 would have layers 0 to 1 of 3, which take .*gpu_layers=2 "),
        ((first, second - 1), r"card 1 would have layers 2 to 2 of 3, .*gpu_layers=2 would fit"),
        ((first, 1), r"card 1 .*and 0 MiB are free: change the shares"),
    ):
        cards(*rooms)
        with pytest.raises(MemoryShortageError, match=said):
            LoadedModel(path, context=CONTEXT, device="cuda", gpu_split=split)


def test_as_many_layers_as_fit(path: Path, cards: Rooms) -> None:
    split = (1, 1)
    cards(*needs(path, split, 2))
    for device, layers in (("cuda", "auto"), ("auto", None)):
        with LoadedModel(
            path, context=CONTEXT, device=device, gpu_layers=layers, gpu_split=split
        ) as model:
            assert model.gpu is not None
            assert (model.gpu.layers, model.gpu.gpus) == (2, 2)
    cards(1 << 34, 1)
    with LoadedModel(path, context=CONTEXT, device="auto", gpu_split=split) as model:
        assert model.gpu is None
        assert model.why_cpu is not None
        assert "card 1" in model.why_cpu


@pytest.mark.usefixtures("cards")
def test_splits_that_cannot_be(path: Path) -> None:
    for options, said in (
        ({"gpu_split": [1] * 4}, "gpu_split has 4 shares, and the model 3 layers"),
        ({"gpu_split": [1, 1], "gpu_layers": 1}, "gpu_layers is 1, and gpu_split has 2 shares"),
        ({"gpu_split": [1, 1], "device": "cpu"}, r"gpu_split is \[1, 1\], and the device 'cpu'"),
        ({"gpu_split": [1]}, r"gpu_split is \[1\]; it must be a list of two or more"),
        ({"gpu_split": [1, 0]}, "two or more numbers above 0"),
        ({"gpu_split": 2}, "two or more numbers above 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            LLM(path, **{"context": CONTEXT, "device": "cuda", **options})


def test_gpus_that_are_not_there(path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no device 'cuda:1': only cuda:0 is there"):
        LoadedModel(path, context=CONTEXT, device="cuda", gpu_split=[1, 1])


@pytest.mark.parametrize(
    ("shares", "layers", "ends"),
    [
        ((1, 1), 32, [16, 32]),
        ((1, 1), 3, [2, 3]),
        ((3, 1), 32, [24, 32]),
        ((1, 1, 1), 32, [11, 21, 32]),
        ((100, 1), 4, [3, 4]),
        ((1, 100, 1), 4, [1, 3, 4]),
        ((1, 1, 100), 3, [1, 2, 3]),
    ],
)
def test_every_gpu_has_its_share_and_a_layer_at_least(
    path: Path, shares: Sequence[float], layers: int, ends: list[int]
) -> None:
    with GgufLoader(path) as model:
        graph, devices = build_graph(model, CONTEXT), [find_device()] * len(shares)
        planner = SplitPlanner(graph, model, KvType.F16, devices, shares, context=CONTEXT)
    assert planner.ends(layers) == ends


def test_the_context_that_the_gpus_have_room_for(tmp_path: Path, cards: Rooms) -> None:
    """The GPU that has room for the fewest tokens limits it."""
    path = write_tiny_llama(tmp_path / "long.gguf", keys={"llama.context_length": 100_000})
    options = EngineOptions(device="cuda", gpu_split=(1, 1))
    assert plan_model(path, options).context == 100_000
    with GgufLoader(path) as model:
        graph = build_graph(model, 8192)
        planner = SplitPlanner(graph, model, KvType.F16, [find_device()] * 2, (1, 1), context=8192)
        tight = planner.plans(2)[1].needs.total(20_000 // BLOCK_TOKENS)
    cards(1 << 34, tight)
    found = plan_model(path, options)
    assert (found.context, found.on_gpu) == (19 * 1024, True)
