"""Whole tiny models on the GPU, against what `transformers` computed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu.gpu_runner import GpuRunner
from ingot.api import LLM
from ingot.backends.gpu import GpuPlan, find_device
from ingot.backends.reference import Reference
from ingot.errors import ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.models import build_graph
from models.recipes import RECIPES
from models.recipes_encoder_decoders import ENCODER_DECODERS
from models.tiny_models import Fixture
from ops.attention import AttentionCase
from tiny_llama import write_tiny_llama
from unit.backends.test_batch_invariance import k_quant_model

HALVES = 1e-2  # weights, inputs and queries are rounded to 11 bits
INTERPRETED = find_device().interpreted
CONTEXT = 96
# How many layers of these have what is special; the interpreter takes seconds for a token.
FEW = {
    "gemma2": 2,  # norms before and after, windows and caps
    "gpt2": 2,  # learned positions and layer norms
    "olmo2": 2,  # norms of all heads together
    "command-r-plus": 2,  # layer norms of each head
    "qwen2moe": 2,  # a gated shared expert
    "gpt-oss": 2,  # sinks and biases
    "smallthinker": 1,  # experts with ReLU gates, chosen before attention
    "olmo": 1,  # norms without weights
    "llama4": 2,  # the same of heads; experts whose input is weighed
    "bailingmoe2": 3,  # groups of experts
    "afmoe": 1,  # a gate on attention
    "apertus": 1,  # xIELU
    "hunyuan-dense": 1,  # norms of heads after RoPE
    "maincoder": 1,  # the same after interleaved RoPE
    "lfm2moe": 3,  # short convolutions, attention, experts
    "mamba": 1,  # a state space
    "mamba2-groups": 1,  # one decay for all states of a head
    "jamba": 2,  # inner norms; attention
    "granitehybrid": 2,
    "nemotron_h": 3,
    "falcon-h1": 1,  # attention and a state space in one layer
    "qwen3next": 1,  # the delta rule, experts
    "qwen35": 4,  # the delta rule with tiled keys; a gate in the query
    "minicpm3": 1,  # latents, one matrix for keys and values of a head
    "gemma3n": 1,  # streams, inputs of layers, peaks
    "gemma4-large": 2,  # heads of two sizes, values made of keys
    "gemma4-experts": 1,  # gate and up of experts in one tensor
    "stablelm-parallel": 1,  # layer norms of each half-split head
    "phimoe": 1,  # the sparse mixer
    "ernie4_5-moe": 2,  # a bias for the choice of experts, softmax
    "nemotron_h_moe": 4,  # experts without a gate, in groups
    "mistral4": 1,  # latents, queries that grow with their position, groups by softmax
    "falcon": 1,  # a parallel MLP with GELU alone
    "exaone4-window": 4,  # norms of heads without RoPE
    "llama-biases": 1,  # of gate and up
    "mamba-falcon": 1,  # norms without weights inside
    "deepseek2": 2,  # latents, a matrix for each; groups of experts
    "deepseek32": 1,  # latents that an indexer chooses
    # Mostly parts that those above have, put together differently.
    "arcee": 1,  # ReLU squared
    "bitnet": 1,  # norms inside attention and MLP
    "bloom": 1,  # ALiBi in a decoder, a norm of the embedding
    "cohere2": 4,  # a parallel MLP, interleaved RoPE with windows, none without
    "ernie4_5": 1,
    "glm4moe": 3,  # RoPE on part of a head, shared experts without a gate
    "hunyuan-moe": 1,  # norms after RoPE, shared experts
    "lfm2": 3,
    "minimax-m2": 1,  # norms of all heads together, sigmoid experts
    "mistral3-long": 1,  # queries that grow with their position
    "qwen3": 1,
    "qwen35moe": 1,
    "seed_oss": 1,  # biases of queries, keys and values alone
}
OF_FEW_BITS = (  # one of every family
    GgmlType.IQ1_M,
    GgmlType.IQ2_XS,
    GgmlType.IQ3_XXS,
    GgmlType.IQ3_S,
    GgmlType.TQ1_0,
    GgmlType.NVFP4,
)
DECODERS = [
    name
    for name, recipe in RECIPES.items()
    if name not in ENCODER_DECODERS and not recipe.encoder and not recipe.ranker
]


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes")
@pytest.mark.parametrize("name", DECODERS)
def test_model(name: str, tmp_path: Path) -> None:
    """A prompt in two pieces, then single tokens."""
    fixture = Fixture.load(name)
    # Rounded queries choose other positions, once there is something to choose from.
    count = min(40, int(fixture.metadata.get("attention.indexer.top_k", 40)))
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        found = run(model, fixture.token_ids[:count], chunk=count // 2 - 3, generated=2)
        assert_near(found, fixture.logits[:count])


@pytest.mark.parametrize("name", FEW)
def test_first_layers(name: str, tmp_path: Path) -> None:
    """Of a model; what they compute is the reference's word."""
    fixture = Fixture.load(name).first_layers(FEW[name])
    ids = fixture.token_ids[:4]
    with GgufLoader(fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)) as model:
        found = run(model, ids, chunk=1, generated=1)
        assert_near(found, Reference(build_graph(model, CONTEXT), model).forward(ids))


@pytest.mark.parametrize("type", OF_FEW_BITS, ids=lambda type: type.name)
def test_formats_of_few_bits(type: GgmlType, tmp_path: Path) -> None:
    """A layer and its embeddings, all of one format; nothing becomes half floats."""
    fixture = k_quant_model().first_layers(1)
    with GgufLoader(fixture.write(tmp_path / "model.gguf", type)) as model:
        assert sum(tensor.type is type for tensor in model.tensors.values()) > 7
        graph = build_graph(model, CONTEXT)
        layout = KvLayout.of(graph.kv_layers, KvType.F16)
        plan = GpuPlan.of(graph, model, layout, find_device(), context=CONTEXT, tokens=64)
        assert plan.decoded == ()
        ids = [3, 60]
        found = run(model, ids, chunk=1, generated=1)
        assert_near(found, Reference(graph, model).forward(ids))


def run(model: GgufLoader, ids: list[int], *, chunk: int, generated: int) -> NDArray[np.float32]:
    runner = GpuRunner(
        build_graph(model, CONTEXT), model, kv_type=KvType.F16, positions=CONTEXT, max_tokens=64
    )
    return runner.run(ids, chunks=[chunk], generated=generated)


def assert_near(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert np.abs(found - expected).max() <= HALVES * max(1.0, float(np.abs(expected).max()))


def test_what_is_refused(tmp_path: Path) -> None:
    """It runs on the CPU, where the device may be chosen."""
    path = write_tiny_llama(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="cannot store keys and values as q4_0"):
        LLM(path, context=32, kv_type="q4_0", device="cuda")
    with LLM(path, context=32, kv_type="q4_0", device="auto") as llm:
        assert not llm.engine.model.on_gpu


def test_kinds_of_operations_that_no_kernel_computes(tmp_path: Path) -> None:
    """They are refused when a model is planned: nothing has been sent by then."""
    case = AttentionCase(norms=True)
    small, logits = case.build()
    bias = small.weight(small.random(case.size))
    made, model = small.build(logits, tmp_path / "small.gguf")
    layout = KvLayout.of(made.kv_layers, KvType.F16)

    def plan(graph: ComputationGraph) -> GpuPlan:
        return GpuPlan.of(graph, model, layout, find_device(), context=64, tokens=64)

    with model:
        plan(made)

        def changed(**fields: object) -> ComputationGraph:
            ops = (replace(op, **fields) if isinstance(op, o.Norm) else op for op in made.ops)
            return replace(made, ops=tuple(ops))

        with pytest.raises(ModelError, match="no norms of heads with biases"):
            plan(changed(bias=bias))


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes minutes")
def test_llm(tmp_path: Path) -> None:
    """Through the front door."""
    fixture = Fixture.load("llama")
    path = fixture.write(tmp_path / "model.gguf", GgmlType.Q8_0)
    ids = fixture.token_ids[:4]
    with LLM(path, context=64, device="cuda") as gpu:
        assert_near(gpu.logits(ids), Reference(gpu.graph, gpu.file).forward(ids))
        assert len(gpu.generate(ids, max_tokens=3, temperature=0).token_ids) == 3
