"""Sums of squared inputs of every matrix, against NumPy's walk through the same graph."""

from pathlib import Path

import numpy as np
import pytest

from ingot.backends.reference.step import Cache, Step, compute
from ingot.engine.model import input_sums
from ingot.engine.model.input_sums import sum_inputs
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.models import build_graph
from ingot.quant import decode
from models.recipes import RECIPES
from models.tiny_models import Fixture

# Plain, fused, gated by experts, with latents (a matrix for each head), recurrent, an encoder.
CHOSEN = ["llama", "gptneox", "qwen3moe", "deepseek2", "mamba2", "qwen35moe", "bert"]
OTHERS = [pytest.param(name, marks=pytest.mark.oracle) for name in RECIPES if name not in CHOSEN]


def expected_sums(loader: GgufLoader, chunks: list[np.ndarray]) -> dict[str, tuple]:
    """By tensor, the sums and counts of its matrices, summed row by row."""
    graph = build_graph(loader, max(map(len, chunks)), hidden=True)
    tensors = {
        weight.name: decode(
            loader.tensors[weight.name].data, loader.tensors[weight.name].type, weight.tensor_shape
        ).astype(np.float64)
        for weight in graph.weights()
    }
    found: dict[str, tuple] = {}
    for chunk in chunks:
        zeros = np.zeros(len(chunk), np.int64)
        positions = np.arange(len(chunk))
        step = Step(
            chunk.astype(np.int64), positions, zeros, None, None, Cache(), tensors, np.float64
        )
        seen: set[tuple[str, str]] = set()
        for op in graph.ops:
            if (result := compute(op, step)) is not None:
                step.values[op.outputs[0].name] = result
            if isinstance(op, o.Linear | o.ExpertLinear | o.HeadLinear) and op.layer is not None:
                key = (op.weight.name, op.source.name)
                if key not in seen and not getattr(op, "transposed", False):
                    seen.add(key)
                    add_rows(found, op, step)
    return found


def add_rows(found: dict[str, tuple], op: o.Op, step: Step) -> None:
    shape = op.weight.shape
    matrices = shape[0] if len(shape) > 2 else 1
    sums, counts = found.setdefault(
        op.weight.name, (np.zeros((matrices, shape[-1])), np.zeros(matrices))
    )
    for number, row in enumerate(step.values[op.source.name]):
        if isinstance(op, o.Linear):
            sums[0] += row**2
            counts[0] += 1
        elif isinstance(op, o.HeadLinear):
            for head, part in enumerate(row.reshape(op.heads, -1)):
                sums[head % matrices] += part[: shape[-1]] ** 2
            counts += 1
        else:
            choice = step.values[op.choice.name][number]
            parts = row.reshape(-1, shape[-1])
            for k, expert in enumerate(choice[: len(choice) // 2].astype(int)):
                sums[expert] += parts[k % len(parts)] ** 2
                counts[expert] += 1


@pytest.mark.parametrize("name", [*CHOSEN, *OTHERS])
def test_sums_of_every_matrix(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_sums, "_KEPT_BYTES", 1)  # steps of the least tokens
    fixture = Fixture.load(name)
    ids = np.array(fixture.token_ids, np.int32)
    chunks = [ids[:40], ids[7:37]]
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as loader:
        calls: list[tuple[int, int]] = []
        found = sum_inputs(loader, chunks, threads=2, progress=lambda *call: calls.append(call))
        expected = expected_sums(loader, chunks)
    assert calls == [(0, 2), (1, 2), (2, 2)]
    assert found.keys() == expected.keys()
    for key, (sums, counts) in expected.items():
        np.testing.assert_array_equal(found[key].counts, counts, key)
        np.testing.assert_allclose(found[key].sums, sums, 2e-3, 1e-5 * sums.max(), err_msg=key)
