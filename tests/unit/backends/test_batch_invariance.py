"""A token's logits do not change by one bit: not with threads, not with company, not with chunks.

Within its phase: a prompt's tokens run through other kernels than a generation's. Whatever
else changes the order of a sum shows here.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.batch import ExecutionPhase
from ingot.backends.cpu.team_size import TeamSize
from ingot.backends.precision import Precision
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import VOCABULARY, Fixture
from run_batches import GENERATION, PROMPT, Runner, using_isa
from tiny_llama import Sizes


@dataclass(frozen=True)
class Model:
    """A model, and how exact it computes."""

    graph: ComputationGraph
    file: GgufLoader
    precision: Precision
    expanded: bool  # the latents of prompts

    kv_type: KvType = KvType.F32

    def runner(self, **sizes: int) -> Runner:
        return Runner(
            self.graph,
            self.file,
            precision=self.precision,
            expanded=self.expanded,
            kv_type=self.kv_type,
            **sizes,
        )


ISAS = st.sampled_from(_native.instruction_sets())


def llama(sizes: Sizes) -> Fixture:
    """A model of sizes that no fixture has; what it should compute is not known."""
    return Fixture(
        architecture="llama",
        metadata=sizes.metadata(),
        shapes=sizes.shapes(VOCABULARY),
        constants={},
        token_ids=[],
        logits=np.zeros((1, VOCABULARY), np.float32),
    )


def k_quant_model() -> Fixture:
    """A model whose rows are whole blocks of 256, which the fixtures' are not."""
    return llama(Sizes(width=256, heads=4, kv_heads=1, feed_forward=256, context=2048))


@pytest.fixture(
    scope="module",
    params=[
        "float",
        "q8_0",
        "q4_k",
        "fast q4_k",
        "fast q4_0",
        "experts",
        "states",
        "hybrid",
        "delta",
        "latents",
        "expanded latents",
        "chosen latents",
    ],
)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    """Gemma's windows in float32, Qwen's biases in Q8_0 and (fast) Q4_0, Llama in Q4_K at both
    precisions, experts in MXFP4, and in Q8_0 state spaces, these beside attention, the delta rule,
    attention over latents in both forms, and over those that an indexer chooses."""
    fixture, type = {
        "float": (Fixture.load("gemma3"), GgmlType.F32),
        "q8_0": (Fixture.load("qwen2"), GgmlType.Q8_0),
        "q4_k": (k_quant_model(), GgmlType.Q4_K),
        "fast q4_k": (k_quant_model(), GgmlType.Q4_K),
        "fast q4_0": (Fixture.load("qwen2"), GgmlType.Q4_0),
        "experts": (Fixture.load("gpt-oss"), GgmlType.MXFP4),
        "states": (Fixture.load("mamba2-groups"), GgmlType.Q8_0),
        "hybrid": (Fixture.load("falcon-h1"), GgmlType.Q8_0),
        "delta": (Fixture.load("qwen3next"), GgmlType.Q8_0),
        "latents": (Fixture.load("deepseek2-lite").first_layers(3), GgmlType.Q8_0),
        "chosen latents": (Fixture.load("glm-dsa"), GgmlType.Q8_0),
    }[request.param.removeprefix("expanded ")]
    path = fixture.write(tmp_path_factory.mktemp("models") / "model.gguf", type)
    with GgufLoader(path) as opened:
        precision = Precision.FAST if "fast" in request.param else Precision.EXACT
        expanded = "expanded" in request.param
        yield Model(build_graph(opened), opened, precision, expanded)


HEAD_ROWS = re.compile(r"attn_([qkv]\.(weight|bias)|[qk]_norm\.weight)$")


def with_heads(name: str) -> Fixture:
    """A fixture with heads of 32 elements, which all types of caches can store."""
    fixture = Fixture.load(name)
    old = fixture.metadata["attention.key_length"]

    def widened(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if HEAD_ROWS.search(name):
            return (shape[0] // old * 32, *shape[1:])
        if name.endswith("attn_output.weight"):
            return (shape[0], shape[1] // old * 32)
        return shape

    keys = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    return replace(
        fixture,
        metadata={**fixture.metadata, **dict.fromkeys(keys, 32)},
        shapes={name: widened(name, shape) for name, shape in fixture.shapes.items()},
    )


# With 8-bit inputs: networks that are no plain llama, and the caches that they can have.
FAST = {
    "mxfp4 experts": (lambda: with_heads("gpt-oss"), GgmlType.MXFP4, True),
    "q8_0 experts": (lambda: with_heads("qwen3moe"), GgmlType.Q8_0, True),
    "states": (lambda: Fixture.load("mamba2-groups"), GgmlType.Q8_0, False),
    "hybrid": (lambda: with_heads("falcon-h1"), GgmlType.Q8_0, True),
    "delta": (lambda: with_heads("qwen3next").first_layers(4), GgmlType.Q8_0, True),
    "latents": (lambda: Fixture.load("deepseek2-lite").first_layers(3), GgmlType.Q8_0, True),
    "chosen latents": (lambda: Fixture.load("deepseek32"), GgmlType.Q8_0, False),
    "expanded latents": (
        lambda: Fixture.load("deepseek2-lite").first_layers(3),
        GgmlType.Q8_0,
        True,
    ),
}
FAST_CASES = [
    pytest.param((name, kv_type), id=f"{name}, {kv_type.value}")
    for name, (*_, has_keys) in FAST.items()
    for kv_type in (KvType.F16, KvType.Q8_0)
    if has_keys or kv_type is KvType.F16  # states have no KV type
]


@pytest.fixture(scope="module", params=FAST_CASES)
def fast_model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    name, kv_type = request.param
    fixture, type, _ = FAST[name]
    path = fixture().write(tmp_path_factory.mktemp("fast") / "model.gguf", type)
    with GgufLoader(path) as opened:
        graph = build_graph(opened)
        yield Model(graph, opened, Precision.FAST, "expanded" in name, kv_type)


class FickleTeam(TeamSize):
    """Another number of threads for every step."""

    def report(self, tokens: int, seconds: float, waited: float) -> None:
        assert tokens == 1
        assert 0 <= waited <= seconds
        self.size = self.size % self.most + 1


def text(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def alone(model: Model, ids: list[int], generated: int = 0) -> NDArray[np.float32]:
    """One sequence on one thread, its prompt in one piece."""
    return model.runner(positions=len(ids), max_tokens=len(ids)).run(ids, generated=generated)


@pytest.mark.usefixtures("isa")
def test_threads(model: Model) -> None:
    ids = text(1, 90)
    expected = alone(model, ids, generated=10)
    for threads in (2, 3):
        runner = model.runner(threads=threads, positions=90)
        np.testing.assert_array_equal(runner.run(ids, generated=10), expected)


@pytest.mark.usefixtures("isa")
def test_threads_that_come_and_go(model: Model) -> None:
    ids = text(1, 40)
    expected = alone(model, ids, generated=30)
    runner = model.runner(threads=4, positions=40)
    runner.backend._team = FickleTeam(4)
    np.testing.assert_array_equal(runner.run(ids, generated=30), expected)


@pytest.mark.usefixtures("isa")
def test_chunks_of_a_prompt(model: Model) -> None:
    ids = text(2, 150)
    expected = alone(model, ids)
    runner = model.runner(positions=160)
    for chunks in ([1], [31, 1, 32], [64, 64], [3, 5, 7, 11, 13, 17], [149]):
        np.testing.assert_array_equal(runner.run(ids, chunks), expected)


@pytest.mark.usefixtures("isa")
def test_company_in_a_generation(model: Model) -> None:
    """1 to 16 sequences at different depths; each as if it were alone."""
    lengths = [1, 2, 5, 31, 32, 33, 34, 47, 63, 64, 65, 70, 80, 96, 100, 7]
    texts = [text(seed, length + 3) for seed, length in enumerate(lengths)]
    expected = [alone(model, ids, generated=3) for ids in texts]
    runner = model.runner(positions=128, sequences=16)
    for name, (ids, length) in enumerate(zip(texts, lengths, strict=True)):
        runner.step({name: ids[:length]})
    for step, count in enumerate((16, 9, 3)):
        names = list(range(count))[:: -1 if step % 2 else 1]
        tokens = {name: [texts[name][lengths[name] + step]] for name in names}
        for name, logits in runner.step(tokens, GENERATION).items():
            np.testing.assert_array_equal(logits[0], expected[name][lengths[name] + step])


@pytest.mark.usefixtures("isa")
def test_company_of_a_deep_sequence(model: Model) -> None:
    """One looks back over two parts of 512 positions, the other over part of one."""
    deep, short = text(20, 620), text(21, 40)
    context = model.graph.context_length
    deep = deep[: min(len(deep), context)]
    expected_deep, expected_short = (alone(model, ids, generated=2)[-2:] for ids in (deep, short))
    runner = model.runner(positions=640, sequences=2)
    for start in range(0, len(deep) - 2, 400):
        runner.step({"deep": deep[start : min(start + 400, len(deep) - 2)]})
    runner.step({"short": short[:-2]})
    for at in (-2, -1):
        found = runner.step({"short": [short[at]], "deep": [deep[at]]}, GENERATION)
        np.testing.assert_array_equal(found["deep"][0], expected_deep[at])
        np.testing.assert_array_equal(found["short"][0], expected_short[at])


@pytest.mark.usefixtures("isa")
def test_fast_inputs(fast_model: Model) -> None:
    """Three texts, on 1 to 3 threads: their prompts mixed and cut, then generated together."""
    lengths = {"long": 45, "short": 7, "late": 33}
    texts = {name: text(seed, length + 4) for seed, (name, length) in enumerate(lengths.items())}
    expected = {name: alone(fast_model, ids, generated=4) for name, ids in texts.items()}
    for threads in (1, 2, 3):
        runner = fast_model.runner(threads=threads, positions=96, sequences=3)
        found: dict[object, list[NDArray[np.float32]]] = {name: [] for name in texts}

        def step(parts: dict[str, tuple[int, int]], phase: ExecutionPhase = PROMPT) -> None:
            tokens = {name: texts[name][first:last] for name, (first, last) in parts.items()}
            for name, logits in runner.step(tokens, phase).items():  # noqa: B023
                found[name].append(logits)  # noqa: B023

        step({"long": (0, 31), "short": (0, 7)})
        step({"late": (0, 33), "long": (31, 45)})
        for at in range(4):
            names = list(texts)[:: -1 if at % 2 else 1]
            together = {name: (lengths[name] + at, lengths[name] + at + 1) for name in names}
            step(together, GENERATION)
        for name, parts in found.items():
            np.testing.assert_array_equal(np.concatenate(parts), expected[name], err_msg=name)


@pytest.mark.parametrize("kv_type", [kind for kind in KvType if kind is not KvType.FP8])
@pytest.mark.usefixtures("isa")
def test_types_of_caches(kv_type: KvType, tmp_path: Path) -> None:
    """A text is cut inside blocks, of which its rows then see parts; another is beside it."""
    path = with_heads("qwen3").write(tmp_path / "model.gguf", GgmlType.Q8_0)
    with GgufLoader(path) as opened:
        model = Model(build_graph(opened), opened, Precision.EXACT, expanded=False, kv_type=kv_type)
        ids = text(5, 100)
        expected = alone(model, ids, generated=6)
        for chunks in ([1], [3, 5, 7, 31], [40]):
            runner = model.runner(threads=2, positions=128, sequences=2)
            runner.step({"other": text(6, 45)})
            found: list[NDArray[np.float32]] = []
            sizes, done = itertools.cycle(chunks), 0
            while done < 94:
                part = ids[done : min(done + next(sizes), 94)]
                found.append(runner.step({"text": part})["text"])
                done += len(part)
            for at in range(94, 100):
                both = runner.step({"other": [7], "text": [ids[at]]}, GENERATION)
                found.append(both["text"])
            np.testing.assert_array_equal(np.concatenate(found), expected)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_schedule(model: Model, data: st.DataObject) -> None:
    """Prompts of several sequences cut and mixed at will."""
    with using_isa(data.draw(ISAS, "isa")):
        lengths = data.draw(st.lists(st.integers(1, 80), min_size=1, max_size=5), "lengths")
        texts = {name: text(name, length) for name, length in enumerate(lengths)}
        found: dict[int, list[NDArray[np.float32]]] = {name: [] for name in texts}
        done = dict.fromkeys(texts, 0)
        threads = data.draw(st.integers(1, 3), "threads")
        runner = model.runner(threads=threads, positions=96, sequences=len(texts))
        while open_names := [name for name in texts if done[name] < len(texts[name])]:
            names = data.draw(
                st.lists(st.sampled_from(open_names), min_size=1, unique=True), "names"
            )
            sizes = {name: data.draw(st.integers(1, 50), "size") for name in names}
            step = {name: texts[name][done[name] : done[name] + sizes[name]] for name in names}
            for name, logits in runner.step(step).items():
                found[name].append(logits)
                done[name] += len(logits)
        for name, ids in texts.items():
            np.testing.assert_array_equal(np.concatenate(found[name]), alone(model, ids))
