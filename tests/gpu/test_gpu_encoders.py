"""Encoders, rerankers and hidden states of decoders on the GPU.

In the interpreter a layer or two of a few of them, against the reference; on a device all of them,
whole, against what `transformers` computed.
"""

from pathlib import Path

import numpy as np
import pytest

from gpu.gpu_runner import GpuRunner
from gpu.test_gpu_models import INTERPRETED, assert_near
from ingot.api import LLM
from ingot.backends.cpu import CpuBackend
from ingot.backends.gpu import Device, GpuBackend
from ingot.backends.reference import Reference
from ingot.engine.model.second_programs import SecondPrograms
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.recipes import RECIPES
from models.tiny_models import PAIR_LENGTHS, Fixture, pair_types

ENCODERS = [name for name in RECIPES if RECIPES[name].encoder]
RANKERS = [name for name in RECIPES if RECIPES[name].ranker]
# How many layers of these have what is special.
FEW = {
    "modern-bert": 2,  # a window both ways
    "t5encoder": 1,  # buckets of distances
    "jina-bert-v2-code": 1,  # ALiBi, norms of all heads with biases
    "jina-bert-v3": 1,  # RoPE and biases
    "nomic-bert-moe": 2,  # experts
    "gemma-embedding": 1,  # norms of heads, windows
}
CONTEXT = 64


def runner_of(model: GgufLoader, sequences: int, context: int = CONTEXT) -> GpuRunner:
    return GpuRunner(
        build_graph(model, context),
        model,
        kv_type=KvType.F16,
        positions=context,
        max_tokens=3 * context,
        sequences=sequences,
    )


@pytest.mark.parametrize("name", FEW)
def test_rows_of_texts_in_one_batch(name: str, tmp_path: Path) -> None:
    """Near the reference, and the same to the last bit alone."""
    fixture = Fixture.load(name).first_layers(FEW[name])
    ids = fixture.token_ids
    texts = {"a": ids[:7], "b": ids[5:8]}
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        runner, reference = runner_of(model, 3), Reference(build_graph(model, CONTEXT), model)
        rows = runner.step(texts)
        for text, found in rows.items():
            assert_near(found, reference.forward(texts[text]))
        np.testing.assert_array_equal(runner.step({"alone": texts["b"]})["alone"], rows["b"])


def test_types_of_tokens(tmp_path: Path) -> None:
    """A reranker: the second text of a pair has its own."""
    fixture = Fixture.load("bert-rank").first_layers(1)
    ids = fixture.token_ids[:6]
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        runner, types = runner_of(model, 3), [0, 0, 1, 1, 1, 1]
        reference = Reference(build_graph(model, CONTEXT), model)
        found = runner.step({"pair": ids}, types=types, outputs=[0])["pair"]
        assert_near(found, reference.forward(ids, types=types)[:1])
        plain = runner.step({"text": ids}, outputs=[0])["text"]
        assert np.abs(found - plain).max() > 1e-3


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes")
@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    ids = fixture.token_ids
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        rows = runner_of(model, 4, 256).step({"part": ids[:9], "whole": ids, "end": ids[40:]})
        assert_near(rows["whole"], fixture.logits)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes")
@pytest.mark.parametrize("name", RANKERS)
def test_reranker(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    texts = [fixture.token_ids[:length] for length in PAIR_LENGTHS]
    with LLM(fixture.write(tmp_path / "model.gguf"), device="cuda") as llm:
        tokens = [np.array(text, np.int32) for text in texts]
        types = [np.array(pair_types(len(text)), np.int32) for text in texts]
        assert_near(llm.engine.programs.scores(tokens, types), fixture.logits)


@pytest.mark.parametrize("layers", [2, 1])
def test_embeddings_of_an_encoder(layers: int, tmp_path: Path) -> None:
    """Through the front door: one program, all of it on the GPU or a part."""
    fixture = Fixture.load("nomic-bert").first_layers(2)
    path = fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)
    texts = [fixture.token_ids[:3], fixture.token_ids[3:8]]
    with LLM(path, context=32) as cpu:
        expected = cpu.embed(texts)
    with LLM(path, context=32, device="cuda", gpu_layers=layers) as llm:
        assert llm.engine.model.on_gpu == (layers == 2)
        assert_near(llm.embed(texts), expected)
        assert llm.engine.programs.hidden._backend is llm.engine.model._backend


def test_embeddings_in_another_process(tmp_path: Path) -> None:
    """The weights are there, and so is what runs on them."""
    fixture = Fixture.load("nomic-bert").first_layers(1)
    path = fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)
    texts = [fixture.token_ids[:3]]
    with LLM(path, context=32) as cpu:
        expected = cpu.embed(texts)
    with LLM(path, context=32, device="cuda", engine_process=True) as llm:
        assert_near(llm.embed(texts), expected)
        assert "hidden" not in vars(llm.engine.programs)  # nothing ran here


def test_embeddings_of_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second program on the same weights; what layers make comes from the CPU."""
    fixture = Fixture.load("llama").first_layers(1)
    path = fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)
    texts = [fixture.token_ids[:3], fixture.token_ids[3:5]]
    with LLM(path, context=32) as cpu:
        expected, layers = cpu.embed(texts), cpu.hidden_states(texts[0])
    with LLM(path, context=32, device="cuda", max_running=1) as llm:
        first, opened = llm.engine.model._gpu_backend, llm.stats
        assert_near(llm.embed(texts), expected)
        assert llm.stats.captures > opened.captures
        assert llm.stats.captures_after_ready == 0
        second = llm.engine.programs.hidden._backend
        assert isinstance(second, GpuBackend)
        assert second is not first
        assert second.weights is first.weights
        np.testing.assert_array_equal(llm.hidden_states(texts[0]), layers)
        # Where there is no memory for it, the CPU computes them.
        monkeypatch.setattr(Device, "free_memory", lambda _: 1 << 10)
        assert isinstance(SecondPrograms(llm.engine.model).hidden._backend, CpuBackend)
