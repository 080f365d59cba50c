"""A token's logits do not change by one bit with its company or the cut of its prompt."""

import numpy as np
import pytest
from test_batch_invariance import k_quant_model, text

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import find_device
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.tiny_models import Fixture
from run_batches import GENERATION

INTERPRETED = find_device().interpreted
MODELS = ["llama"] if INTERPRETED else ["dense", "gpt-oss", "qwen3moe"]


@pytest.fixture(scope="module", params=MODELS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> GpuRunner:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    if request.param == "dense":
        k_quant_model().write(path, GgmlType.Q4_K)
    else:
        Fixture.load(request.param).write(path, GgmlType.Q8_0)
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
    """Also across the bound from which on matrices are unpacked."""
    length = 5 if INTERPRETED else 400
    ids = ids_of(runner, 2, length)
    expected = runner.run(ids)
    for chunks in ([3],) if INTERPRETED else ([1], [31, 1, 32], [64, 64], [255], [399]):
        np.testing.assert_array_equal(runner.run(ids, chunks), expected)


def test_company_in_a_generation(runner: GpuRunner) -> None:
    lengths = (
        [1, 3]
        if INTERPRETED
        else [1, 2, 5, 31, 32, 33, 47, 63, 64, 65, 80, 130, 300, 500, 7, 9, 11]
    )
    texts = [ids_of(runner, seed, length + 2) for seed, length in enumerate(lengths)]
    expected = [runner.run(ids, generated=2)[-2:] for ids in texts]
    for name, (ids, length) in enumerate(zip(texts, lengths, strict=True)):
        runner.step({name: ids[:length]})
    for step, count in enumerate((len(lengths), 2)):
        names = list(range(count))[:: -1 if step % 2 else 1]
        tokens = {name: [texts[name][lengths[name] + step]] for name in names}
        for name, logits in runner.step(tokens, GENERATION).items():
            np.testing.assert_array_equal(logits[0], expected[name][step])
    for name in range(len(lengths)):
        runner.end(name)


def test_tokens_of_one_text_together(runner: GpuRunner) -> None:
    """As guesses are verified: several tokens of a sequence in one step of a generation."""
    ids = ids_of(runner, 3, 7 if INTERPRETED else 140)
    expected = runner.run(ids, generated=3)[-3:]
    runner.step({"text": ids[:-3]})
    found = runner.step({"text": ids[-3:]}, GENERATION)["text"]
    runner.end("text")
    np.testing.assert_array_equal(found, expected)
