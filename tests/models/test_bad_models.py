"""Models that cannot be run, of every architecture: a typed error that names what is wrong."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.api import LLM
from ingot.errors import IngotError, ModelError
from ingot.gguf import GgufLoader, GgufWriter
from ingot.graph import ComputationGraph
from ingot.graph.ops import Gating, Route
from ingot.models import architectures, build_graph
from models.recipes import RECIPES
from models.tiny_models import LAYER, Fixture, Floats

WITH_EXPERTS = [name for name in RECIPES if Fixture.load(name).metadata.get("expert_count")]
WITH_SHARED_EXPERTS = [
    name for name in RECIPES if any("_shexp" in tensor for tensor in Fixture.load(name).shapes)
]
# Models whose cache holds latents; the sizes of the cache are stated beside those of heads.
LATENTS = [name for name in RECIPES if "attention.kv_lora_rank" in Fixture.load(name).metadata]
STATED = [name for name in LATENTS if "attention.key_length_mla" in Fixture.load(name).metadata]


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As errors say it: a vector may be stored as a matrix of one row."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def firsts(fixture: Fixture) -> dict[str, tuple[int, ...]]:
    """The tensors of the first layer that has one of their name, and those of no layer."""
    found: dict[str, str] = {}
    for name in fixture.shapes:
        found.setdefault(LAYER.sub("blk.N.", name), name)
    return {name: fixture.shapes[name] for name in found.values()}


@pytest.fixture(params=architectures())
def fixture(request: pytest.FixtureRequest) -> Fixture:
    return Fixture.load(request.param)


def rewrite(source: Path, path: Path, change: Callable[[str, Any], tuple[str, Any]]) -> Path:
    """Copy a file, its tensors as `change` wants them: name, values."""
    writer = GgufWriter(path)
    with GgufLoader(source) as model:
        for key, value in model.metadata.items():
            strings = not isinstance(value, str | int | float | np.ndarray)
            writer.add(key, list(value) if strings else value)
        for tensor in model.tensors.values():
            values = tensor.data.view(np.float32).reshape(tensor.shape)
            name, changed = change(tensor.name, values)
            writer.add_tensor(name, changed)
    writer.write()
    return path


def error_of(model: GgufLoader, tensors: Mapping[str, Any]) -> str:
    """What is wrong with a file that has these tensors instead of its own."""
    changed: Any = SimpleNamespace(path=model.path, metadata=model.metadata, tensors=tensors)
    with pytest.raises(ModelError) as caught:
        build_graph(changed)
    assert "model.gguf" in str(caught.value)
    return str(caught.value)


@pytest.fixture
def opened(fixture: Fixture, tmp_path: Path) -> Iterator[GgufLoader]:
    with GgufLoader(fixture.write(tmp_path / "model.gguf")) as model:
        yield model


def test_each_tensor_is_needed(fixture: Fixture, opened: GgufLoader) -> None:
    for name in firsts(fixture):
        if name == "output.weight":
            continue  # without an output, the embedding serves
        rest = {other: tensor for other, tensor in opened.tensors.items() if other != name}
        error = error_of(opened, rest)
        shapes = {fixture.shapes[name], without_ones(fixture.shapes[name])}
        missing = any(f"tensor {name} (shape {shape}) is missing" in error for shape in shapes)
        # Some models have it and some have not; but then in every layer, and what goes with it.
        alone = "has no place in this network"
        # A layer without a router has an MLP instead of experts.
        router = name.endswith(".ffn_gate_inp.weight")
        dense = router and f"tensor {name.replace('_inp', '')} (shape" in error
        assert missing or alone in error or dense


def test_each_shape_is_checked(fixture: Fixture, opened: GgufLoader) -> None:
    for name, shape in firsts(fixture).items():
        wrong = (*shape[:-1], shape[-1] + 1)
        error = error_of(opened, {**opened.tensors, name: SimpleNamespace(shape=wrong)})
        assert f"tensor {name} has shape {wrong}" in error
        assert error.endswith((f"ask for {shape}", f"ask for {without_ones(shape)}"))


def test_a_tensor_that_the_network_does_not_read(opened: GgufLoader) -> None:
    extra = {f"blk.{layer}.attn_extra.bias": SimpleNamespace(shape=(3,)) for layer in (1, 2)}
    error = error_of(opened, {**opened.tensors, **extra})
    assert "blk.1.attn_extra.bias (2 in all) has no place in this network" in error


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.int16, np.int32, np.int64])
def test_matrices_of_types_without_a_kernel(dtype: type, tmp_path: Path) -> None:
    source = Fixture.load("llama").write(tmp_path / "model.gguf")

    def change(name: str, values: Floats) -> tuple[str, Any]:
        return name, values.astype(dtype) if name == "blk.1.ffn_up.weight" else values

    path = rewrite(source, tmp_path / "typed.gguf", change)
    kind = np.dtype(dtype)
    message = f"blk.1.ffn_up.weight is {kind.kind.upper()}{kind.itemsize * 8}, which the CPU cannot"
    with pytest.raises(ModelError, match=message):
        LLM(path, threads=1)


def test_embeddings_and_norms_may_be_of_any_type(tmp_path: Path) -> None:
    fixture = Fixture.load("qwen2")
    source = Fixture.load("llama").write(tmp_path / "model.gguf")

    def change(name: str, values: Floats) -> tuple[str, Any]:
        wide = name == "token_embd.weight" or values.ndim == 1
        return name, values.astype(np.float64) if wide else values

    path = rewrite(source, tmp_path / "wide.gguf", change)
    with LLM(source, threads=1) as one, LLM(path, threads=1) as two:
        np.testing.assert_array_equal(one.logits(fixture.token_ids), two.logits(fixture.token_ids))


@pytest.mark.parametrize("factors", [[1.0] * 7, [1.0] * 9, [1.0] * 7 + [0.0], [1.0] * 7 + [np.nan]])
def test_rotary_factors(factors: list[float], tmp_path: Path) -> None:
    fixture = Fixture.load("llama-factors")
    spoiled = replace(fixture, constants={"rope_freqs.weight": np.array(factors, np.float32)})
    path = spoiled.write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"rope_freqs.weight must hold 8 positive numbers"):
        LLM(path, threads=1)


@pytest.mark.parametrize("name", ["gemma4", "gemma4-large", "gemma4-experts"])
def test_rotary_factors_that_an_architecture_needs(name: str, tmp_path: Path) -> None:
    """Without them the layers that see everything would compute something else."""
    path = replace(Fixture.load(name), constants={}).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"rope_freqs\.weight \(shape \(12,\)\) is missing"):
        LLM(path, threads=1)


@pytest.mark.parametrize("name", ["apertus", "llama-factors"])
def test_rotary_factors_that_not_every_model_has(name: str, tmp_path: Path) -> None:
    path = replace(Fixture.load(name), constants={}).write(tmp_path / "model.gguf")
    with LLM(path, threads=1) as llm:
        assert llm.logits([1, 2]).shape == (2, 61)


def test_heads_that_do_not_share_evenly(tmp_path: Path) -> None:
    fixture = Fixture.load("llama")
    metadata = {**fixture.metadata, "attention.head_count_kv": 4}
    path = replace(fixture, metadata=metadata).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match="6 query heads cannot share 4 key heads evenly"):
        LLM(path, threads=1)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_heads_that_are_no_whole_blocks_of_the_cache(kv_type: str, tmp_path: Path) -> None:
    path = Fixture.load("gemma3").write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=f"20 elements cannot be stored as {kv_type.upper()}"):
        LLM(path, threads=1, kv_type=kv_type)


def with_gating(name: str, number: int, path: Path) -> ComputationGraph:
    """The graph of a tiny model whose file states this gating."""
    fixture = Fixture.load(name)
    metadata = {**fixture.metadata, "expert_gating_func": number}
    with GgufLoader(replace(fixture, metadata=metadata).write(path / "model.gguf")) as model:
        return build_graph(model)


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_a_gating_that_nobody_knows(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"expert_gating_func is 9; it must be 1 \(softmax"):
        with_gating(name, 9, tmp_path)


@pytest.mark.parametrize("name", WITH_EXPERTS)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_stated_gating_is_the_one_that_is_computed(
    name: str, number: int, tmp_path: Path
) -> None:
    computed, refused = set(), ""
    try:
        graph = with_gating(name, number, tmp_path)
        computed = {op.gating for op in graph.ops if isinstance(op, Route)}
    except ModelError as error:
        refused = str(error)
    if refused:
        assert f"{Fixture.load(name).architecture}.expert_gating_func says " in refused
    else:
        assert computed
        softmax = {Gating.SOFTMAX, Gating.CHOSEN_SOFTMAX}
        assert computed <= ({Gating.SIGMOID} if number == 2 else softmax)


@pytest.mark.parametrize(
    ("name", "number", "stated", "computed"),
    [
        ("qwen3moe", 2, "sigmoid", "softmax"),
        ("gemma4-experts", 2, "sigmoid", "softmax"),
        ("gpt-oss", 2, "sigmoid", "softmax of the chosen experts"),
        ("llama4", 1, "softmax", "sigmoid"),
        ("phimoe", 1, "softmax", "sparse mixer"),
        ("olmoe", 3, "softmax of the chosen experts", "softmax"),  # whose weights are not normed
    ],
)
def test_a_gating_that_an_architecture_does_not_have(
    name: str, number: int, stated: str, computed: str, tmp_path: Path
) -> None:
    message = f"expert_gating_func says {stated}, but the experts of .* are weighed by {computed};"
    with pytest.raises(ModelError, match=message):
        with_gating(name, number, tmp_path)


@pytest.mark.parametrize(
    ("name", "number"), [("qwen3moe", 1), ("qwen3moe", 3), ("gpt-oss", 1), ("llama4", 2)]
)
def test_a_gating_that_a_file_need_not_state(name: str, number: int, tmp_path: Path) -> None:
    assert with_gating(name, number, tmp_path).ops


@pytest.mark.parametrize("name", WITH_SHARED_EXPERTS)
def test_a_shared_expert_that_is_missing(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    shapes = {name: shape for name, shape in fixture.shapes.items() if "_shexp" not in name}
    path = replace(fixture, shapes=shapes).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"tensor blk\.\d+\.\w+_shexp\.weight .* is missing"):
        LLM(path, threads=1)


def refused(name: str, changes: Mapping[str, Any], tmp_path: Path) -> str:
    """The error of a tiny model with these keys of its metadata."""
    fixture = Fixture.load(name)
    path = replace(fixture, metadata={**fixture.metadata, **changes}).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError) as caught:
        LLM(path, threads=1)
    return str(caught.value)


def without(name: str, key: str, tmp_path: Path) -> None:
    """A tiny model that lacks a key is refused, and the key is named."""
    fixture = Fixture.load(name)
    rest = {other: value for other, value in fixture.metadata.items() if other != key}
    path = replace(fixture, metadata=rest).write(tmp_path / "model.gguf")
    with pytest.raises(IngotError, match=re.escape(f"{name}.{key}")):
        LLM(path, threads=1)


@pytest.mark.parametrize("name", LATENTS)
def test_latents_that_do_not_fit(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    latent: Any = fixture.metadata["attention.kv_lora_rank"]
    rotary: Any = fixture.metadata["rope.dimension_count"]
    width: Any = fixture.metadata["embedding_length"]
    # As if the other sizes followed from the wrong one.
    stated = {
        "attention.key_length": latent + rotary - 1,
        "attention.value_length": latent - 1,
    }
    changes = {"attention.kv_lora_rank": latent - 1, **(stated if name in STATED else {})}
    error = refused(name, changes, tmp_path)
    shapes = f"{(latent + rotary, width)}, but the metadata ask for {(latent + rotary - 1, width)}"
    assert f"blk.0.attn_kv_a_mqa.weight has shape {shapes}" in error
    kind = "_mla" if name in STATED else ""
    head = fixture.metadata[f"attention.key_length{kind}"]
    error = refused(name, {"rope.dimension_count": head}, tmp_path)
    key = f"{fixture.architecture}.rope.dimension_count"
    assert f"{key} is {head}; it must be 1 to {head - 1} in this file" in error


@pytest.mark.parametrize("name", LATENTS)
@pytest.mark.parametrize("change", [-1, 1])
def test_heads_of_latents_that_do_not_fit(name: str, change: int, tmp_path: Path) -> None:
    """Of keys and values, before and after the latents; the error names a tensor or the key."""
    fixture = Fixture.load(name)
    for key, size in fixture.metadata.items():
        if key.startswith(("attention.key_length", "attention.value_length")):
            error = refused(name, {key: size + change}, tmp_path)
            stated = f"{fixture.architecture}.{key} is {size + change}; it must be {size} ("
            assert (stated if name in STATED and "_mla" not in key else "ask for") in error


@pytest.mark.parametrize("name", STATED)
def test_sizes_of_the_cache_need_not_be_stated(name: str, tmp_path: Path) -> None:
    fixture = Fixture.load(name)
    derived = {"attention.key_length", "attention.value_length"}
    rest = {key: value for key, value in fixture.metadata.items() if key not in derived}
    path = fixture.write(tmp_path / "model.gguf")
    other = replace(fixture, metadata=rest).write(tmp_path / "other.gguf")
    ids = fixture.token_ids[:5]
    with LLM(path, threads=1) as one, LLM(other, threads=1) as two:
        np.testing.assert_array_equal(one.logits(ids), two.logits(ids))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expert_group_count": 5}, "is 5; it must be a number that divides 12 experts"),
        ({"expert_group_count": 13}, "is 13; it must be 1 to 12 in this file"),
        ({"expert_group_used_count": 5}, "is 5; it must be 1 to 4 in this file"),
        (
            {"expert_group_count": 12, "expert_group_used_count": 2},
            "is 12; it must be fewer: 2 groups have no 3 experts",
        ),
    ],
)
def test_groups_that_do_not_fit_the_experts(
    changes: dict[str, int], message: str, tmp_path: Path
) -> None:
    assert message in refused("deepseek2", changes, tmp_path)


@pytest.mark.parametrize("name", ["deepseek32", "glm-dsa"])
@pytest.mark.parametrize("key", ["head_count", "key_length", "top_k"])
def test_a_size_of_the_indexer_that_is_missing(name: str, key: str, tmp_path: Path) -> None:
    without(name, f"attention.indexer.{key}", tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("key_length", 8, "attention.indexer.key_length is 8; it must be 9 to"),
        ("key_length", 66, "tensor blk.0.indexer."),
        ("head_count", 0, "attention.indexer.head_count is 0; it must be 1 to"),
        ("head_count", 8, "tensor blk.0.indexer."),
        ("top_k", 0, "attention.indexer.top_k is 0; it must be 1 to"),
        ("types", [True, False], "attention.indexer.types must be a list of 5"),
        ("types", True, "attention.indexer.types must be a list of 5"),
        ("types", [False, True, True, True, True], "says that the first layer shares an indexer"),
        ("types", [True] * 5, "tensor blk.1.indexer.attn_q_b.weight"),
    ],
)
def test_an_indexer_that_does_not_fit(key: str, value: Any, message: str, tmp_path: Path) -> None:
    assert message in refused("glm-dsa", {f"attention.indexer.{key}": value}, tmp_path)


def test_an_indexer_without_a_short_query(tmp_path: Path) -> None:
    without("deepseek32", "attention.q_lora_rank", tmp_path)


def test_layers_that_share_an_indexer_in_files_that_do_not_say_so(tmp_path: Path) -> None:
    """They are those without tensors of one."""
    fixture = Fixture.load("glm-dsa")
    path = fixture.write(tmp_path / "model.gguf")
    rest = {k: v for k, v in fixture.metadata.items() if k != "attention.indexer.types"}
    other = replace(fixture, metadata=rest).write(tmp_path / "other.gguf")
    with LLM(path, threads=1) as one, LLM(other, threads=1) as two:
        np.testing.assert_array_equal(one.logits(fixture.token_ids), two.logits(fixture.token_ids))


@pytest.mark.parametrize("name", ["qwen35", "qwen2", "qwen3vl"])
@pytest.mark.parametrize("wrong", [[1, 1, 1, 0, 0], [9, 9, 9, 9], [1, 1, -1], [1.0, 1.0], 3, "3"])
def test_axes_that_do_not_fit_the_rotary_pairs(name: str, wrong: Any, tmp_path: Path) -> None:
    error = refused(name, {"rope.dimension_sections": wrong}, tmp_path)
    pairs = {"qwen35": 3, "qwen2": 8, "qwen3vl": 10}[name]
    assert f"{name}.rope.dimension_sections must be a list of up to 4 numbers" in error
    assert f"at most {pairs} together" in error


@pytest.mark.parametrize("sections", [[3, 0, 0, 0], [1, 1], [0, 0, 0, 0]])
def test_axes_of_positions_do_not_change_a_text(sections: list[int], tmp_path: Path) -> None:
    fixture = Fixture.load("qwen35")
    path = fixture.write(tmp_path / "model.gguf")
    metadata = {**fixture.metadata, "rope.dimension_sections": sections}
    other = replace(fixture, metadata=metadata).write(tmp_path / "other.gguf")
    with LLM(path, threads=1) as one, LLM(other, threads=1) as two:
        np.testing.assert_array_equal(one.logits(fixture.token_ids), two.logits(fixture.token_ids))


@pytest.mark.parametrize("count", [-1, 4, 5])
def test_layers_of_which_too_many_predict_several_tokens(count: int, tmp_path: Path) -> None:
    fixture = Fixture.load("glm4moe")
    metadata = {**fixture.metadata, "nextn_predict_layers": count}
    path = replace(fixture, metadata=metadata).write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=rf"glm4moe\.nextn_predict_layers is {count}"):
        LLM(path, threads=1)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("olmo", "clamp_kqv", 8.0),
        ("mpt", "clamp_kqv", 6.0),
        ("mpt", "max_alibi_bias", 16.0),
        ("mpt", "max_alibi_bias", 0.0),
    ],
)
def test_networks_that_a_supported_architecture_also_stands_for(
    name: str, key: str, value: float, tmp_path: Path
) -> None:
    fixture = Fixture.load(name)
    other = replace(fixture, metadata={**fixture.metadata, f"attention.{key}": value})
    message = rf"{name}\.attention\.{key} is {value}; models that clamp"
    with pytest.raises(ModelError, match=message):
        LLM(other.write(tmp_path / "other.gguf"), threads=1)


KEYS = sorted({key for name in architectures() for key in Fixture.load(name).metadata})
SPOILED = (
    st.sampled_from([0, -1, 1, 2, 3, 5, 2**31, 2**32, 2**40, 0.0, -1.0, 1e-30, 1e30])
    | st.sampled_from([float("nan"), float("inf"), "", "linear", "yarn"])
    | st.integers(-(2**63), 2**63 - 1)
)


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(architectures()), key=st.sampled_from(KEYS), value=SPOILED)
def test_any_number_is_understood_or_refused(
    name: str, key: str, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Never a crash, a hang, or an error of another kind; what opens also runs."""
    fixture = Fixture.load(name)
    spoiled = replace(fixture, metadata={**fixture.metadata, key: value})
    path = spoiled.write(tmp_path_factory.mktemp("spoiled") / "model.gguf")
    with suppress(IngotError), LLM(path, threads=1, context=8) as llm:
        assert llm.logits([1, 2, 3]).shape == (3, 61)


def test_a_file_that_reads_images_for_a_model(tmp_path: Path) -> None:
    fixture = replace(Fixture.load("llama"), architecture="clip")
    path = fixture.write(tmp_path / "mmproj-model-f16.gguf")
    with pytest.raises(ModelError, match=r"mmproj-model-f16\.gguf is a projector \(clip\)"):
        LLM(path, threads=1)


def test_a_file_that_is_a_vocabulary_only(tmp_path: Path) -> None:
    fixture = replace(Fixture.load("llama"), shapes={})
    path = fixture.write(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"model\.gguf has no weights: it is a vocabulary only"):
        LLM(path, threads=1)
