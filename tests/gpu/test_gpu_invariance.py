"""A token's logits do not change by one bit with its company or the cut of its prompt."""

from pathlib import Path

import numpy as np
import pytest

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import find_device
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture
from run_batches import GENERATION
from tiny_llama import Sizes
from unit.backends.test_batch_invariance import k_quant_model, llama, text

INTERPRETED = find_device().interpreted
# In the interpreter one layer, in which columns are shared out where there are many.
SMALL = Sizes(width=64, layers=1, heads=2, kv_heads=1, feed_forward=512, context=64)
MODELS = ["small", "small-experts"] if INTERPRETED else ["dense", "gpt-oss", "qwen3moe"]


@pytest.fixture(scope="module", params=MODELS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GpuRunner:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    match request.param:
        case "dense":
            k_quant_model().write(path, GgmlType.Q4_K)
        case "small":
            llama(SMALL).write(path, GgmlType.Q8_0)
        case "small-experts":
            Fixture.load("qwen3moe").first_layers(1).write(path, GgmlType.Q8_0)
        case name:
            Fixture.load(name).write(path, GgmlType.Q8_0)
    model = GgufLoader(path)
    context = 64 if INTERPRETED else 640
    return GpuRunner(
        build_graph(model, context),
        model,
        kv_type=KvType.F16,
        positions=context,
        sequences=20,
        max_tokens=512,
    )


def ids_of(runner: GpuRunner, seed: int, length: int) -> list[int]:
    return [int(token) % runner.backend.vocabulary for token in text(seed, length)]


def test_chunks_of_a_prompt(runner: GpuRunner) -> None:
    """Also across the number of tokens from which on programs take more of them at once."""
    length = 5 if INTERPRETED else 400
    ids = ids_of(runner, 2, length)
    expected = runner.run(ids)
    for chunks in ([3],) if INTERPRETED else ([1], [31, 1, 32], [64, 64], [255], [399]):
        np.testing.assert_array_equal(runner.run(ids, chunks), expected)


def test_company_in_a_generation(runner: GpuRunner) -> None:
    """Of all the texts, then of two of them in another order."""
    lengths = [1, 2, 5, 31, 32, 33, 47, 63, 64, 65, 80, 130, 300, 500, 7, 9, 11]
    orders = [list(range(len(lengths))), [1, 0]]
    if INTERPRETED:
        lengths, orders = [1, 3], [[1, 0]]
    steps = len(orders)
    texts = [ids_of(runner, seed, length + steps) for seed, length in enumerate(lengths)]
    expected = [runner.run(ids, generated=steps)[-steps:] for ids in texts]
    for name, (ids, length) in enumerate(zip(texts, lengths, strict=True)):
        runner.step({name: ids[:length]})
    for step, names in enumerate(orders):
        tokens = {name: [texts[name][lengths[name] + step]] for name in names}
        for name, logits in runner.step(tokens, GENERATION).items():
            np.testing.assert_array_equal(logits[0], expected[name][step])
    for name in range(len(lengths)):
        runner.end(name)


def test_tokens_of_one_text_together(runner: GpuRunner) -> None:
    """As guesses are verified: several tokens of a sequence in one step of a generation."""
    length, guesses = (4, 2) if INTERPRETED else (140, 3)
    ids = ids_of(runner, 3, length)
    expected = runner.run(ids, generated=guesses)[-guesses:]
    runner.step({"text": ids[:-guesses]})
    found = runner.step({"text": ids[-guesses:]}, GENERATION)["text"]
    runner.end("text")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes for so many texts")
@pytest.mark.parametrize("count", [100, 256])
@pytest.mark.parametrize("kind", ["dense", "experts"])
def test_company_of_hundreds(tmp_path: Path, kind: str, count: int) -> None:
    """Tiles are wide then, and chunks are multiplied whole; nobody sees a difference."""
    path = tmp_path / "m.gguf"
    if kind == "dense":
        k_quant_model().write(path, GgmlType.Q4_K)
    else:
        Fixture.load("qwen3moe").write(path, GgmlType.Q8_0)
    with GgufLoader(path) as model:
        graph = build_graph(model, 64)
        runner = GpuRunner(graph, model, kv_type=KvType.F16, positions=64, sequences=count)
        texts = [ids_of(runner, seed, 3 + seed % 7) for seed in range(count)]
        expected = [runner.run(ids, generated=1)[-1] for ids in texts]
        for name, ids in enumerate(texts):
            runner.step({name: ids[:-1]})
        found = runner.step({name: [ids[-1]] for name, ids in enumerate(texts)}, GENERATION)
        for name, logits in enumerate(expected):
            np.testing.assert_array_equal(found[name][0], logits)
