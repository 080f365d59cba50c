"""Encoder-decoders on the GPU: two programs over one cache, one of which reads prompts.

In the interpreter a layer of each, against the reference; on a device all of them, whole, against
what `transformers` computed.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu.test_gpu_models import INTERPRETED, assert_near
from ingot.api import LLM
from ingot.backends.encoder_decoder import EncoderDecoder
from ingot.backends.gpu import GpuBackend, GpuPlan, find_device
from ingot.backends.reference import Cache, Reference
from ingot.errors import GraphError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.recipes_encoder_decoders import ENCODER_DECODERS
from models.text_runner import CONTEXT, TextRunner
from models.tiny_models import PROMPT, Fixture

FEW = ("t5", "t5-deep")  # a gate, and none; in the interpreter one layer of each
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
on_a_device = pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes")


class Programs(EncoderDecoder):
    """With the memory that the runner spoils."""

    def __init__(self, encoder: GpuBackend, decoder: GpuBackend) -> None:
        super().__init__(encoder, decoder)
        self.pools = decoder.pools


class GpuTextRunner(TextRunner):
    """Sequences of a prompt and what is written after it, on the GPU."""

    def make_backend(
        self, graph: ComputationGraph, model: GgufLoader, layout: KvLayout, **sizes: Any
    ) -> Any:
        blocks, context = sizes["blocks"], sizes["context"]
        plan = GpuPlan.of(
            graph, model, layout, find_device(), context=context, tokens=64, sequences=4
        )
        assert plan.encoder is not None
        decoder = GpuBackend(plan, model, blocks=blocks)
        encoder = GpuBackend(
            plan.encoder, model, blocks=blocks, weights=decoder.weights, pools=decoder.pools
        )
        return Programs(encoder, decoder)

    def spoil(self, memory: torch.Tensor) -> None:
        noise = np.random.default_rng(0).integers(0, 256, len(memory), np.uint8)
        memory.copy_(torch.from_numpy(noise))


@pytest.mark.parametrize("name", FEW)
def test_texts_in_one_batch(name: str, tmp_path: Path) -> None:
    """Prompts of different lengths; tokens one by one and several at once; alone, the same bits."""
    fixture = Fixture.load(name).first_layers(1)
    prompts: Any = {"a": fixture.token_ids[:5], "b": fixture.token_ids[5:8]}
    written = fixture.token_ids[8:12]
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        graph = build_graph(model, 64)
        runner = GpuTextRunner(graph, model, kv_type=KvType.F16, positions=64, sequences=3)
        runner.encode(prompts)
        found = [
            runner.write({"a": written[:1], "b": written[:1]}),
            runner.write({"a": written[1:3], "b": written[1:2]}),
        ]
        for name, prompt in prompts.items():
            reference, cache = Reference(graph, model), Cache()
            reference.encode(prompt, cache)
            rows = np.concatenate([step[name] for step in found])
            assert_near(rows, reference.forward(written[: len(rows)], cache))
        runner.encode({"c": prompts["b"]})
        alone = runner.write({"c": written[:1]})["c"]
        np.testing.assert_array_equal(alone, found[0]["b"])


@on_a_device
@pytest.mark.parametrize(("length", "written"), [(129, 1), (129, 9), (100, 1), (100, 50)])
def test_several_parts(length: int, written: int, tmp_path: Path) -> None:
    """What is encoded, or what is decoded, lies in two parts of a sequence's past."""
    fixture = Fixture.load("t5").first_layers(1)
    ids = [*fixture.token_ids, *fixture.token_ids]
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        graph = build_graph(model, 256)
        runner = GpuTextRunner(graph, model, kv_type=KvType.F16, positions=256)
        runner.encode({"text": ids[:length]})
        reference, cache = Reference(graph, model), Cache()
        reference.encode(ids[:length], cache)
        expected = reference.forward(ids[3 : 3 + written], cache)
        assert_near(runner.write({"text": ids[3 : 3 + written]})["text"], expected)


def test_a_text(tmp_path: Path) -> None:
    """Through the front door: the same text as the CPU's; nothing is compiled on the way."""
    fixture = Fixture.load("t5").first_layers(1)
    path, prompt = fixture.write(tmp_path / "model.gguf"), fixture.token_ids[:4]
    with LLM(path, context=32) as cpu:
        expected = cpu.generate(prompt, max_tokens=3, **GREEDY).token_ids
    with pytest.raises(GraphError, match="runs on one device"):
        LLM(Fixture.load("t5").write(tmp_path / "whole.gguf"), device="cuda", gpu_layers=1)
    with LLM(path, context=32, device="cuda", max_running=1) as llm:
        assert llm.engine.model.on_gpu
        assert llm.generate(prompt, max_tokens=3, **GREEDY).token_ids == expected
        prepared = llm.engine.model.prepared
        assert prepared.captures > 0
        assert (prepared.compilations_after_ready, prepared.captures_after_ready) == (0, 0)


@on_a_device
@pytest.mark.parametrize("kv_type", [KvType.F16, KvType.F32, KvType.Q8_0])
@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_model(name: str, kv_type: KvType, tmp_path: Path) -> None:
    """What is written at once, in pieces and token by token."""
    fixture = Fixture.load(name)
    prompt, written = fixture.token_ids[:PROMPT], fixture.token_ids[PROMPT:]
    if kv_type is KvType.Q8_0 and any(
        layer.head_size % 32 for layer in _kv_layers(fixture, tmp_path)
    ):
        pytest.skip("heads of whole 32s alone are stored as q8_0")
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        runner = GpuTextRunner(build_graph(model, CONTEXT), model, kv_type=kv_type, sequences=3)
        for chunks in ((), (1, 2, 30), [1] * (len(written) - 1)):
            assert_near(runner.text(prompt, written, *chunks), fixture.logits)


def _kv_layers(fixture: Fixture, folder: Path) -> Any:
    with GgufLoader(fixture.write(folder / "model.gguf")) as model:
        return build_graph(model, CONTEXT).kv_layers


@on_a_device
@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_texts_of_the_engine(name: str, tmp_path: Path) -> None:
    """Several at once, sampled on the device, with guesses, forked and saved: as alone."""
    fixture = Fixture.load(name)
    path = fixture.write(tmp_path / "model.gguf")
    prompts = [fixture.token_ids[:PROMPT], fixture.token_ids[5:12], fixture.token_ids[:3]]
    hot: dict[str, Any] = {"temperature": 2.0, "top_k": 40, "seed": 3, "ignore_eos": True}
    with LLM(path, device="cuda", max_running=4) as llm:
        alone = [
            [llm.generate(prompt, max_tokens=30, **fields).token_ids for prompt in prompts]
            for fields in (GREEDY, hot)
        ]
        for fields, expected in zip((GREEDY, hot), alone, strict=True):
            texts = [llm.stream(prompt, max_tokens=30, **fields) for prompt in prompts]
            assert [text.result().token_ids for text in texts] == expected
        assert llm.engine.model.prepared.compilations_after_ready == 0
    with LLM(path, device="cuda", max_running=4, speculation="ngram") as llm:
        found = [llm.generate(prompt, max_tokens=30, **GREEDY).token_ids for prompt in prompts]
        assert found == alone[0]
