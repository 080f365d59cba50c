"""Whole encoder-decoders, tiny ones, against what `transformers` computed after a prompt."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import _native
from ingot.api import LLM
from ingot.backends.reference import Cache, Reference
from ingot.gguf import GgmlType, GgufLoader
from ingot.kvcache import SequenceBlocks
from ingot.models import build_graph
from models.recipes_encoder_decoders import ENCODER_DECODERS
from models.text_runner import TextRunner
from models.tiny_models import PROMPT, Fixture
from run_batches import using_isa

FLOAT = 1e-4
QUANTIZED, IN_TILES = 3e-3, 5e-2  # as in test_models.py
EVERY_SET = [False, pytest.param(True, marks=pytest.mark.oracle)]
Rows = NDArray[np.float32]


@pytest.fixture(scope="module", params=ENCODER_DECODERS)
def fixture(request: pytest.FixtureRequest) -> Fixture:
    return Fixture.load(request.param)


@pytest.fixture(scope="module")
def path(fixture: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture.write(tmp_path_factory.mktemp("models") / "model.gguf")


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[GgufLoader]:
    with GgufLoader(path) as opened:
        yield opened


@pytest.fixture
def prompt(fixture: Fixture) -> list[int]:
    return fixture.token_ids[:PROMPT]


@pytest.fixture
def written(fixture: Fixture) -> list[int]:
    return fixture.token_ids[PROMPT:]


def assert_within(found: Rows, expected: Rows, bound: float) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= bound * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reference(
    fixture: Fixture, model: GgufLoader, prompt: list[int], written: list[int], dtype: type
) -> None:
    reference, cache = Reference(build_graph(model), model, dtype), Cache()
    reference.encode(prompt, cache)
    pieces = [reference.forward(piece, cache) for piece in (written[:1], written[1:30])]
    assert_within(np.concatenate(pieces), fixture.logits[:30], FLOAT)
    assert_within(reference.forward(written[30:], cache), fixture.logits[30:], FLOAT)


@pytest.mark.parametrize("every", EVERY_SET)
def test_float_file(
    fixture: Fixture, model: GgufLoader, prompt: list[int], written: list[int], every: bool
) -> None:
    graph, expected = build_graph(model), fixture.logits
    *others, best = _native.instruction_sets()
    for isa in [*others, best] if every else [best]:
        with using_isa(isa):
            runner = TextRunner(graph, model, sequences=3, threads=2)
            assert_within(runner.text(prompt, written), expected, FLOAT)
            assert_within(runner.text(prompt, written, 1, 2, 30), expected, FLOAT)
            assert_within(runner.text(prompt, written, *[1] * 59), expected, FLOAT)


def test_texts_in_one_batch(
    fixture: Fixture, model: GgufLoader, prompt: list[int], written: list[int]
) -> None:
    """Prompts of different lengths, read together; what is written is at different depths."""
    graph = build_graph(model)
    runner = TextRunner(graph, model, sequences=3)
    runner.encode({"a": prompt, "b": prompt[:5]})
    runner.write({"a": written[:9]})
    runner.encode({"c": prompt[:32]})
    names: dict[object, list[int]] = {"b": prompt[:5], "c": prompt[:32]}
    both = runner.write({"b": written[:4], "a": written[9:20], "c": written[:1]})
    assert_within(both["a"], fixture.logits[9:20], FLOAT)
    for name, read in names.items():
        reference, cache = Reference(graph, model, np.float64), Cache()
        reference.encode(read, cache)
        expected = reference.forward(written[: len(both[name])], cache)
        assert_within(both[name], expected, FLOAT)


def test_neither_company_nor_threads_change_a_bit(
    fixture: Fixture, prompt: list[int], written: list[int], tmp_path: Path
) -> None:
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        graph = build_graph(model)
        alone = TextRunner(graph, model).text(prompt, written[:20])
        for threads in (1, 3):
            runner = TextRunner(graph, model, sequences=3, threads=threads)
            runner.encode({"b": prompt[:35], "a": prompt})
            found = runner.write({"b": written[:3], "a": written[:20]})["a"]
            np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize(
    ("type", "every"),
    [(GgmlType.Q8_0, False), pytest.param(GgmlType.Q4_0, True, marks=pytest.mark.oracle)],
)
def test_quantized_file(
    fixture: Fixture,
    prompt: list[int],
    written: list[int],
    type: GgmlType,
    every: bool,
    tmp_path: Path,
) -> None:
    with GgufLoader(fixture.write(tmp_path / "model.gguf", type)) as model:
        graph = build_graph(model)
        reference, cache = Reference(graph, model, np.float64), Cache()
        reference.encode(prompt, cache)
        expected = reference.forward(written, cache)
        *others, best = _native.instruction_sets()
        for isa in [*others, best] if every else [best]:
            with using_isa(isa):
                found = TextRunner(graph, model).text(prompt, written, 33)
                assert_within(found, expected, IN_TILES if isa == "amx" else QUANTIZED)


def test_fork_and_undo(
    fixture: Fixture, model: GgufLoader, prompt: list[int], written: list[int]
) -> None:
    """A text that continues in two ways, of which one takes tokens back."""
    runner = TextRunner(build_graph(model), model, sequences=3)
    runner.encode({"a": prompt})
    runner.write({"a": written[:25]})
    forked, copies = runner.sequences["a"].fork()
    for copy in copies:
        runner.backend.copy_block(copy.group, copy.source, copy.target)
    runner.sequences["b"], runner.read["b"] = forked, PROMPT
    runner.write({"a": [1, 2, 3]})
    assert_within(runner.write({"b": written[25:30]})["b"], fixture.logits[25:30], FLOAT)
    taken_back: SequenceBlocks = runner.sequences["a"]
    taken_back.shrink(PROMPT + 10)
    assert_within(runner.write({"a": written[10:40]})["a"], fixture.logits[10:40], FLOAT)


def test_rows_of_the_encoder(model: GgufLoader, prompt: list[int]) -> None:
    graph = build_graph(model)
    rows = TextRunner(graph, model).encode({"text": prompt})["text"]
    assert_within(rows, Reference(graph, model, np.float64).encode(prompt, Cache()), FLOAT)
    hidden = build_graph(model, hidden=True)
    assert hidden.hidden
    assert_within(Reference(hidden, model, np.float64).forward(prompt), rows, FLOAT)


def test_embeddings_are_of_the_encoder(path: Path, model: GgufLoader, prompt: list[int]) -> None:
    states = Reference(build_graph(model, hidden=True), model).forward(prompt)
    with LLM(path, threads=1, kv_type="f32") as llm:
        found = llm.engine.programs.embeddings(
            [np.array(prompt, np.int32)], "mean", normalize=False
        )
    assert_within(found, states.mean(axis=0, keepdims=True), FLOAT)
