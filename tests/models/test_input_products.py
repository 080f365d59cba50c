"""Roots of the products of inputs, against NumPy's walk through the same graph."""

from pathlib import Path

import numpy as np
import pytest

from ingot.backends.reference.step import Cache, Step, compute
from ingot.engine.model import input_products
from ingot.engine.model.input_products import InputProducts
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.models import build_graph
from ingot.quant import decode
from models.tiny_models import Fixture

DAMPING = 0.01


def expected_products(loader: GgufLoader, chunks: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Of each matrix of the layers."""
    graph = build_graph(loader, max(map(len, chunks)), hidden=True)
    tensors = {
        weight.name: decode(
            loader.tensors[weight.name].data, loader.tensors[weight.name].type, weight.tensor_shape
        ).astype(np.float64)
        for weight in graph.weights()
    }
    found: dict[str, np.ndarray] = {}
    for chunk in chunks:
        zeros, positions = np.zeros(len(chunk), np.int64), np.arange(len(chunk))
        step = Step(
            chunk.astype(np.int64), positions, zeros, None, None, Cache(), tensors, np.float64
        )
        seen = set()  # a matrix of query, key and value has three operations
        for op in graph.ops:
            if (result := compute(op, step)) is not None:
                step.values[op.outputs[0].name] = result
            if isinstance(op, o.Linear) and op.layer is not None and (op.weight.name not in seen):
                seen.add(op.weight.name)
                rows = step.values[op.source.name]
                found[op.weight.name] = found.get(op.weight.name, 0) + rows.T @ rows
    return found


@pytest.mark.parametrize("name", ["llama", "gptneox", "qwen35moe"])
@pytest.mark.parametrize("most", [1, 1 << 30])
def test_products_of_every_matrix(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one pass, and in one for each input, in steps of the least tokens."""
    monkeypatch.setattr(input_products, "_BYTES", most)
    monkeypatch.setattr(input_products, "_KEPT_BYTES", most)
    fixture = Fixture.load(name)
    ids = np.array(fixture.token_ids, np.int32)
    chunks = [ids[:40], ids[7:37]]
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as loader:
        found = InputProducts(loader, chunks, threads=2)
        expected = expected_products(loader, chunks)
        assert expected
        for key, products in expected.items():
            root = found.root(key)
            assert root is not None, key
            size = len(products)
            wanted = products + DAMPING * np.trace(products) / size * np.eye(size)
            np.testing.assert_allclose(root @ root.T, wanted, atol=3e-3 * wanted.max(), err_msg=key)
        assert found.root("token_embd.weight") is None


def test_too_many_inputs_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_products, "_WIDEST", 1)
    fixture = Fixture.load("llama")
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as loader:
        found = InputProducts(loader, [np.array(fixture.token_ids, np.int32)], threads=1)
        assert found.root("blk.0.attn_q.weight") is None
