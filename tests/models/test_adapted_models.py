"""Adapters of every matrix that can be adapted, on the architectures that compute differently."""

from pathlib import Path

import numpy as np
import pytest

from ingot.adapters import Adapter, FloatMatrix, LowRank, combined
from ingot.adapters.adapter import EMBEDDING, OUTPUT
from ingot.adapters.merge import merge_adapter
from ingot.backends.batch import ExecutionPhase
from ingot.backends.reference import Reference
from ingot.errors import AdapterError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ComputationGraph
from ingot.models import build_graph
from models.test_split import SplitRunner
from models.tiny_models import Fixture
from run_batches import GENERATION, PROMPT, Runner

# Fused matrices, scales, biases, parallel layers, experts with shared ones, latents, states,
# streams.
NAMES = (
    "phi3", "gpt2", "gemma3", "granite", "command-r", "qwen2moe", "deepseek2", "falcon-h1",
    "gpt-oss", "llama4", "gemma4-experts", "granitemoe", "mistral4", "mamba", "mamba2",
    "granitehybrid-dense", "gemma3n",
)  # fmt: skip


def made_up(graph: ComputationGraph, rank: int) -> Adapter:
    """An adapter of all that can be adapted."""
    random = np.random.default_rng(rank)

    def matrix(rows: int, columns: int) -> FloatMatrix:
        return FloatMatrix.of(random.normal(0, 0.2, (rows, columns)).astype(np.float32))

    tensors = {}
    for op in graph.ops:
        for weight in op.adapted_matrices:
            if len(weight.tensor_shape) != 2:  # Gemma 3n: several matrices between its streams
                continue
            rows, columns = weight.tensor_shape
            name = OUTPUT if weight.name == EMBEDDING else weight.name
            tensors[name] = LowRank(matrix(rank, columns), matrix(rows, rank), 0.3)
        for part in op.adapted_experts:
            experts, rows, columns = part.weight.shape
            tensors[part.weight.name] = LowRank(
                matrix(experts * rank, columns), matrix(experts * rows, rank), 0.3, experts
            )
        if op.adapted_table:
            rows, columns = op.adapted_table.tensor_shape
            tensors[op.adapted_table.name] = LowRank(matrix(rows, rank), matrix(columns, rank), 0.3)
    adapter = Adapter("made up", tensors)
    adapter.require_fit(graph)
    return adapter


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    model = GgufLoader(fixture.write(tmp_path / "model.gguf"))
    graph, ids = build_graph(model), list(fixture.token_ids)
    adapter = made_up(graph, 3)
    wanted = Reference(graph, model, np.float64).forward(ids, adapter=adapter, adapter_scale=0.5)
    runner = Runner(graph, model, positions=96)
    runner.backend.attach(0, adapter)
    found = runner.run(ids, generated=3, adapter=(0, 0.5))
    np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())
    merged = tmp_path / "merged.gguf"
    merge_adapter(model, combined([(adapter, 0.5)]), merged, kind=GgmlType.F32)
    with GgufLoader(merged) as file:
        twin = Reference(build_graph(file), file, np.float64).forward(ids)
    np.testing.assert_allclose(twin, wanted, atol=1e-4 * np.abs(wanted).max())
    plain = Reference(graph, model).forward(ids)
    assert np.abs(wanted - plain).max() > 0.02 * np.abs(plain).max()


def test_matrices_of_the_heads_of_latents_are_refused(tmp_path: Path) -> None:
    fixture = Fixture.load("deepseek2")
    graph = build_graph(GgufLoader(fixture.write(tmp_path / "model.gguf")))
    heads = [weight for weight in graph.weights() if ".attn_k_b." in weight.name]
    assert heads
    low = LowRank(
        FloatMatrix.of(np.ones((2, 8), np.float32)), FloatMatrix.of(np.ones((8, 2), np.float32)), 1
    )
    adapter = Adapter("made up", {heads[0].name: low})
    with pytest.raises(AdapterError, match=f"{heads[0].name}.*not supported"):
        adapter.require_fit(graph)


def test_both_parts_of_a_split_model_have_the_adapter(tmp_path: Path) -> None:
    fixture = Fixture.load("llama")
    model = GgufLoader(fixture.write(tmp_path / "model.gguf"))
    graph, ids = build_graph(model), list(fixture.token_ids)
    adapter = made_up(graph, 2)
    runner = SplitRunner(graph, model, 1)
    runner.backend.attach(0, adapter)
    wanted = Reference(graph, model, np.float64).forward(ids, adapter=adapter)
    found = runner.run(ids, generated=2, adapter=(0, 1.0))
    np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("phase", [PROMPT, GENERATION])
def test_experts_give_the_same_bits_alone_and_among_others(
    phase: ExecutionPhase, tmp_path: Path
) -> None:
    """Two adapters, one of them with two scales, and none in a batch; then one is removed."""
    fixture = Fixture.load("gpt-oss")
    model = GgufLoader(fixture.write(tmp_path / "model.gguf"))
    graph, ids = build_graph(model), list(fixture.token_ids)
    few = ids if phase is PROMPT else ids[:1]
    uses = {"a": (0, 0.5), "b": (1, 1.0), "none": None, "c": (0, -1.0)}
    runner = Runner(graph, model, threads=2, positions=96, sequences=8)
    for slot, rank in enumerate((3, 8)):
        runner.backend.attach(slot, made_up(graph, rank))
    together = runner.step(dict.fromkeys(uses, few), phase, adapters=uses)
    for name, use in uses.items():
        alone = Runner(graph, model, positions=96)
        for slot, rank in enumerate((3, 8)):
            alone.backend.attach(slot, made_up(graph, rank))
        found = alone.step({name: few}, phase, adapters={name: use})[name]
        np.testing.assert_array_equal(together[name], found)
    assert len({logits.tobytes() for logits in together.values()}) == len(uses)
    runner.backend.attach(1, None)
    freed = runner.step({"d": few}, phase, adapters={"d": (1, 1.0)})["d"]
    np.testing.assert_array_equal(freed, together["none"])


def test_adapters_of_experts_are_combined(tmp_path: Path) -> None:
    fixture = Fixture.load("mixtral")
    model = GgufLoader(fixture.write(tmp_path / "model.gguf"))
    graph, ids = build_graph(model), list(fixture.token_ids)
    one, other = made_up(graph, 2), made_up(graph, 5)
    merged = tmp_path / "merged.gguf"
    merge_adapter(model, combined([(one, 0.5)]), merged, kind=GgmlType.F32)
    with GgufLoader(merged) as file:
        twin = Reference(build_graph(file), file, np.float64)
        wanted = twin.forward(ids, adapter=other, adapter_scale=-0.3)
    runner = Runner(graph, model, positions=96)
    runner.backend.attach(0, combined([(one, 0.5), (other, -0.3)]))
    found = runner.run(ids, generated=2, adapter=(0, 1.0))
    np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())
