"""The memory arithmetic, against models that are open and numbers worked out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.backends.cpu import CpuBackend
from ingot.engine import LoadedModel
from ingot.gguf import GgufLoader
from ingot.graph.kv_type import KvType
from ingot.memory_estimate import Layer, ModelDimensions, estimate_memory, vocabulary_size
from tiny_llama import write_tiny_llama

SMALL: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.embedding_length": 576,
    "llama.context_length": 8192,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.vocab_size": 49152,
}


def dimensions(**changes: Any) -> ModelDimensions:
    keys = {f"llama.{key.replace('__', '.')}": value for key, value in changes.items()}
    found = ModelDimensions.from_metadata(SMALL | keys)
    assert found is not None
    return found


@pytest.mark.parametrize(("context", "kv_type"), [(None, KvType.F16), (100, KvType.Q8_0)])
def test_what_an_open_model_takes(tmp_path: Path, context: int | None, kv_type: KvType) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    with GgufLoader(path) as file:
        found = estimate_memory(file, context, kv_type)
    with LoadedModel(path, threads=1, context=context, kv_type=kv_type, cache_tokens=1) as model:
        backend = model._running
        assert isinstance(backend, CpuBackend)
        groups = zip(model.layout.groups, model.pool.sizes, strict=True)
        assert found is not None
        assert found.built
        assert (found.context, found.batch) == (model.context, model.context)
        assert found.kv_cache == sum(group.block_bytes * size for group, size in groups)
        assert found.arena == backend.plan.size * found.batch + 4 * model.graph.logits.width
        assert found.weights == sum(tensor.nbytes for tensor in model.file.tensors.values())


def test_a_model_that_cannot_be_built(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama", b"lhama"))
    with GgufLoader(path) as file:
        found = estimate_memory(file, None, KvType.F16)
        sizes = ModelDimensions.from_metadata(file.metadata)
    assert found is not None
    assert sizes is not None
    assert not found.built
    assert found == sizes.estimate(found.weights, sizes.context, KvType.F16)


def test_a_plain_transformer() -> None:
    found = dimensions().estimate(weights=1000, context=8192, kv_type=KvType.F16)
    # 30 layers, 8192 tokens, 3 heads of 64 keys and 64 values, 2 bytes each
    assert found.kv_cache == 30 * 8192 * 2 * 3 * 64 * 2 == 188_743_680
    # 512 tokens of two embeddings and of gate + up (wider than 9 * 128 + 3 * 128), and logits
    assert found.arena == 4 * 512 * (2 * 576 + 2 * 1536) + 4 * 49152
    assert found.weights == 1000
    assert found.total == 1000 + found.kv_cache + found.arena


@pytest.mark.parametrize(
    ("kv_type", "bytes_per_head"),
    [
        (KvType.F32, 64 * 4),
        (KvType.F16, 64 * 2),
        (KvType.BF16, 64 * 2),
        (KvType.Q8_0, 2 * 34),
        (KvType.Q4_0, 2 * 18),
        (KvType.FP8, 64 + 2),
    ],
)
def test_kv_types(kv_type: KvType, bytes_per_head: int) -> None:
    found = dimensions().estimate(0, 100, kv_type)
    assert found.kv_cache == 30 * 100 * 2 * 3 * bytes_per_head


def test_a_row_that_does_not_fill_its_last_block() -> None:
    layer = Layer(heads=1, kv_heads=1, key_length=33, value_length=1, feed_forward=0, window=None)
    assert layer.kv_bytes(1, KvType.Q8_0) == 2 * 34 + 34


def test_a_short_context_makes_a_small_batch() -> None:
    found = dimensions().estimate(0, 10, KvType.F16)
    assert found.batch == 10
    assert found.arena == 4 * 10 * (2 * 576 + 2 * 1536) + 4 * 49152


def test_attention_wider_than_the_feed_forward_sets_the_arena() -> None:
    found = dimensions(attention__head_count=64, attention__key_length=64, feed_forward_length=0)
    value_length = 576 // 64
    attention = 64 * (64 + value_length) + 3 * (64 + value_length)
    assert found.estimate(0, 1, KvType.F16).arena == 4 * (2 * 576 + attention) + 4 * 49152


def test_key_and_value_lengths_of_their_own() -> None:
    found = dimensions(attention__key_length=256, attention__value_length=128)
    assert found.estimate(0, 1, KvType.F16).kv_cache == 30 * 3 * (256 + 128) * 2


def test_recurrent_layers_have_one_state() -> None:
    sizes = {"ssm__inner_size": 1536, "ssm__state_size": 16, "ssm__conv_kernel": 4}
    found = dimensions(attention__head_count=0, attention__head_count_kv=0, **sizes)
    states = [found.estimate(0, context, KvType.F16).kv_cache for context in (10, 10_000)]
    assert states == [30 * 4 * 1536 * (16 + 3)] * 2
    found = dimensions(
        attention__head_count=0, attention__head_count_kv=0, ssm__group_count=2, **sizes
    )
    assert found.estimate(0, 1, KvType.F16).kv_cache == states[0] + 30 * 4 * 3 * 2 * 2 * 16
    assert dimensions(**sizes).estimate(0, 10, KvType.F16).kv_cache == 30 * 10 * 2 * 3 * 64 * 2


def test_without_kv_heads_every_head_has_its_own() -> None:
    keys = {key: value for key, value in SMALL.items() if not key.endswith("head_count_kv")}
    found = ModelDimensions.from_metadata(keys)
    assert found is not None
    assert found.layers[0].kv_heads == 9


def test_heads_per_layer_and_layers_without_attention() -> None:
    heads = np.array([4, 0, 2], dtype=np.int32)
    found = dimensions(block_count=3, attention__head_count_kv=heads)
    assert found.estimate(0, 1, KvType.F16).kv_cache == (4 + 0 + 2) * 2 * 64 * 2


@pytest.mark.parametrize(
    "pattern", [3, np.array([True, True, False] * 2), np.array([1, 1, 0, 1, 1, 0])]
)
def test_sliding_windows(pattern: Any) -> None:
    found = dimensions(
        block_count=6, attention__sliding_window=1000, attention__sliding_window_pattern=pattern
    )
    assert [layer.window for layer in found.layers] == [1000, 1000, None] * 2
    assert found.unplaced_window is None
    per_token = 2 * 3 * 64 * 2
    long = found.estimate(0, 10_000, KvType.F16).kv_cache
    assert long == per_token * (4 * (1000 + 512) + 2 * 10_000)
    assert found.estimate(0, 900, KvType.F16).kv_cache == per_token * 6 * 900


def test_a_window_without_a_pattern_is_counted_in_full() -> None:
    found = dimensions(attention__sliding_window=1000)
    assert {layer.window for layer in found.layers} == {None}
    assert found.unplaced_window == 1000
    assert dimensions().unplaced_window is None


def test_experts_in_use_count_together() -> None:
    found = dimensions(expert_used_count=8, expert_feed_forward_length=768)
    assert found.layers[0].feed_forward == 8 * 768
    found = dimensions(
        expert_used_count=2, feed_forward_length=640
    )  # each as wide as the file says
    assert found.layers[0].feed_forward == 2 * 640


def test_an_encoder_keeps_no_cache() -> None:
    assert dimensions(attention__causal=False).estimate(0, 512, KvType.F16).kv_cache == 0


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"general.architecture": "llama"},
        SMALL | {"llama.block_count": 0},
        SMALL | {"llama.block_count": 2**32 - 1},
        SMALL | {"llama.block_count": "thirty"},
        SMALL | {"llama.embedding_length": -1},
        SMALL | {"general.architecture": 7},
    ],
)
def test_a_file_that_describes_no_transformer(metadata: dict[str, Any]) -> None:
    assert ModelDimensions.from_metadata(metadata) is None


@pytest.mark.parametrize("odd", ["nine", -9, 2.5, np.array([1, 2]), np.array([0.5] * 30), True])
def test_odd_values_fall_back(odd: Any) -> None:
    found = dimensions(attention__head_count_kv=odd, context_length=odd)
    assert {layer.kv_heads for layer in found.layers} == {9}
    assert found.context == 0


def test_vocabulary_size_counts_the_tokens_themselves() -> None:
    assert vocabulary_size(SMALL) == 49152
    assert vocabulary_size(SMALL | {"tokenizer.ggml.tokens": np.zeros(7)}) == 7
    assert vocabulary_size({}) == 0


def test_numbers_are_plain_integers() -> None:
    heads = np.array([3] * 30, dtype=np.uint32)
    found = dimensions(attention__head_count_kv=heads).estimate(0, 2**40, KvType.F32)
    assert type(found.kv_cache) is int
    assert found.kv_cache == 30 * 2**40 * 2 * 3 * 64 * 4
