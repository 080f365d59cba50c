"""A token's logits do not change by one bit with its company or the cut of its prompt."""

import numpy as np
import pytest
from test_batch_invariance import k_quant_model, text

from gpu.gpu_runner import GpuRunner
from ingot.backends.gpu import find_device
from ingot.gguf import GgmlType, GgufLoader
from ingot.models import build_graph
from run_batches import GENERATION

INTERPRETED = find_device().interpreted


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> GpuRunner:
    path = k_quant_model().write(tmp_path_factory.mktemp("model") / "m.gguf", GgmlType.Q4_K)
    model = GgufLoader(path)
    return GpuRunner(
        build_graph(model),
        model,
        kv_type=GgmlType.F16,
        positions=640,
        sequences=20,
        max_tokens=512,
    )


def test_chunks_of_a_prompt(runner: GpuRunner) -> None:
    """Also across the bound from which on matrices are unpacked."""
    length = 12 if INTERPRETED else 400
    ids = text(2, length)
    expected = runner.run(ids)
    for chunks in ([1], [3, 5]) if INTERPRETED else ([1], [31, 1, 32], [64, 64], [255], [399]):
        np.testing.assert_array_equal(runner.run(ids, chunks), expected)


def test_company_in_a_generation(runner: GpuRunner) -> None:
    lengths = (
        [1, 5, 8]
        if INTERPRETED
        else [1, 2, 5, 31, 32, 33, 47, 63, 64, 65, 80, 130, 300, 500, 7, 9, 11]
    )
    texts = [text(seed, length + 2) for seed, length in enumerate(lengths)]
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
