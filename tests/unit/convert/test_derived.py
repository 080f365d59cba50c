"""What is done to tensors on the way into a file, each on a small checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import write_safetensors
from ingot.convert.conversion import stored_form
from ingot.convert.derived import TransposedBlocks
from ingot.convert.keys import network_keys
from ingot.convert.matrices import PlainMatrix
from ingot.convert.safetensors import read_safetensors
from ingot.convert.tensors import FileTensor, plan_numbers, plan_tensors
from ingot.errors import ConversionError

NEMOTRON = "NemotronHForCausalLM"
RNG = np.random.default_rng(21)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f4")


def planned(
    tmp_path: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> dict[str, FileTensor]:
    write_safetensors(tmp_path / "x", tensors)
    _, checkpoint, settings = stored_form(config, config["architectures"][0])
    return plan_tensors(checkpoint, settings, read_safetensors(tmp_path / "x"))


def values_of(tensor: FileTensor, step: int = 3) -> np.ndarray:
    """All of a tensor, read some rows at a time, in an order that a stream has."""
    starts = range(0, tensor.rows, step)
    pieces = [tensor.read(first, min(first + step, tensor.rows)) for first in starts]
    return np.concatenate(pieces).reshape(tensor.shape)


def test_keys_and_values_of_latents(tmp_path: Path) -> None:
    """Of each head the rows for its key, transposed, and those for its value."""
    heads, key, value, latent = 3, 4, 2, 5
    stored = random(heads * (key + value), latent)
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "num_attention_heads": heads,
        "qk_nope_head_dim": key, "v_head_dim": value, "num_hidden_layers": 2,
    }  # fmt: skip
    found = planned(tmp_path, config, {"model.layers.1.self_attn.kv_b_proj.weight": stored})
    by_head = stored.reshape(heads, key + value, latent)
    assert found.keys() == {"blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight"}
    np.testing.assert_array_equal(
        values_of(found["blk.1.attn_k_b.weight"]), by_head[:, :key].swapaxes(1, 2)
    )
    np.testing.assert_array_equal(values_of(found["blk.1.attn_v_b.weight"]), by_head[:, key:])


def test_value_heads_of_the_delta_rule(tmp_path: Path) -> None:
    """Rows of values, channels of the convolution and columns of the output, in one order."""
    heads, repeat, size, width = 2, 3, 4, 7
    config = {
        "architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 4,
        "linear_num_key_heads": heads, "linear_num_value_heads": heads * repeat,
        "linear_key_head_dim": size, "linear_value_head_dim": size,
    }  # fmt: skip
    keys, values = 2 * heads * size, heads * repeat * size
    stem = "model.layers.0.linear_attn"
    stored = {
        f"{stem}.in_proj_qkv.weight": random(keys + values, width),
        f"{stem}.conv1d.weight": random(keys + values, 1, 4),
        f"{stem}.out_proj.weight": random(width, values),
        f"{stem}.A_log": random(heads * repeat),
    }
    found = planned(tmp_path, config, stored)
    order = [key * repeat + number for number in range(repeat) for key in range(heads)]
    rows = np.concatenate([np.arange(size) + head * size for head in order])
    joined = np.concatenate([np.arange(keys), keys + rows])
    np.testing.assert_array_equal(
        values_of(found["blk.0.attn_qkv.weight"]), stored[f"{stem}.in_proj_qkv.weight"][joined]
    )
    np.testing.assert_array_equal(
        values_of(found["blk.0.ssm_conv1d.weight"]), stored[f"{stem}.conv1d.weight"][joined, 0]
    )
    np.testing.assert_array_equal(
        values_of(found["blk.0.ssm_out.weight"]), stored[f"{stem}.out_proj.weight"][:, rows]
    )
    np.testing.assert_allclose(
        values_of(found["blk.0.ssm_a"]), -np.exp(stored[f"{stem}.A_log"][order]), rtol=1e-6
    )


def test_numbers_that_are_keys(tmp_path: Path) -> None:
    """xIELU's numbers: of each layer one, in the order of layers, whatever the order of names."""
    stored = {
        f"model.layers.{layer}.mlp.act_fn.{name}": np.full(shape, 10 * layer + place, "f4")
        for layer in (10, 2, 0)
        for place, (name, shape) in enumerate({"alpha_p": (1,), "beta": ()}.items())
    }
    write_safetensors(tmp_path / "x", stored)
    config = {"architectures": ["ApertusForCausalLM"], "num_hidden_layers": 11}
    _, checkpoint, settings = stored_form(config, "ApertusForCausalLM")
    tensors = read_safetensors(tmp_path / "x")
    assert plan_tensors(checkpoint, settings, tensors) == {}
    assert plan_numbers(checkpoint, settings, tensors) == {
        "xielu.alpha_p": [0.0, 20.0, 100.0],
        "xielu.beta": [1.0, 21.0, 101.0],
    }


def test_a_number_must_be_one(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x", {"model.layers.0.mlp.act_fn.beta": random(2)})
    _, checkpoint, settings = stored_form({"num_hidden_layers": 1}, "ApertusForCausalLM")
    with pytest.raises(ConversionError, match=r"beta has the shape \(2,\); it must be a number"):
        plan_numbers(checkpoint, settings, read_safetensors(tmp_path / "x"))


def test_tokens_without_a_row(tmp_path: Path) -> None:
    """Tokens of pictures have no inputs of layers: zeros."""
    stored = random(5, 6)
    config = {"architectures": ["Gemma3nForCausalLM"], "vocab_size": 8}
    found = planned(tmp_path, config, {"model.embed_tokens_per_layer.weight": stored})
    whole = values_of(found["per_layer_token_embd.weight"])
    np.testing.assert_array_equal(whole, np.concatenate([stored, np.zeros((3, 6))]))


def test_rows_of_an_output_matrix_that_is_normalized_on_use(tmp_path: Path) -> None:
    projection = "model.layers.0.self_attn.o_proj.weight"
    stored = {"lm_head.weight": random(6, 4), projection: random(4, 4)}
    config = {"architectures": ["BaichuanForCausalLM"], "vocab_size": 125696}
    found = planned(tmp_path, config, stored)
    matrix = stored["lm_head.weight"]
    expected = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    np.testing.assert_allclose(values_of(found["output.weight"]), expected, rtol=1e-6)
    other = values_of(found["blk.0.attn_output.weight"])
    np.testing.assert_array_equal(other, stored[projection])
    first = planned(tmp_path, {**config, "vocab_size": 64000}, stored)
    np.testing.assert_array_equal(values_of(first["output.weight"]), matrix)


def test_three_values(tmp_path: Path) -> None:
    """Matrices of BitNet: -1, 0 or 1 times the mean magnitude; norms and embeddings stay."""
    stored = {
        "model.layers.0.mlp.up_proj.weight": random(7, 5),
        "model.layers.0.mlp.ffn_layernorm.weight": random(7),
        "model.embed_tokens.weight": random(6, 5),
    }
    found = planned(tmp_path, {"architectures": ["BitnetForCausalLM"]}, stored)
    matrix = stored["model.layers.0.mlp.up_proj.weight"]
    mean = np.abs(matrix.astype(np.float64)).mean()
    expected = np.clip(np.rint(matrix / mean), -1, 1) * mean
    whole = values_of(found["blk.0.ffn_up.weight"])
    np.testing.assert_allclose(whole, expected, rtol=1e-6)
    assert len(np.unique(whole)) == 3
    np.testing.assert_array_equal(
        values_of(found["blk.0.ffn_sub_norm.weight"]),
        stored["model.layers.0.mlp.ffn_layernorm.weight"],
    )
    np.testing.assert_array_equal(
        values_of(found["token_embd.weight"]), stored["model.embed_tokens.weight"]
    )


def test_matrices_of_bitnet_that_are_taken_as_they_are(tmp_path: Path) -> None:
    """The class of `transformers` does not round; with squared ReLU there is no file for it."""
    stored = {
        "model.layers.0.mlp.up_proj.weight": random(7, 5),
        "model.layers.0.mlp.ffn_sub_norm.weight": random(7),
        "model.layers.0.self_attn.attn_sub_norm.weight": random(5),
    }
    config = {"architectures": ["BitNetForCausalLM"], "hidden_act": "silu"}
    found = planned(tmp_path, config, stored)
    for name, values in zip(
        ("ffn_up", "ffn_sub_norm", "attn_sub_norm"), stored.values(), strict=True
    ):
        np.testing.assert_array_equal(values_of(found[f"blk.0.{name}.weight"]), values)
    with pytest.raises(ConversionError, match="fit no form of BitNetForCausalLM"):
        planned(tmp_path, {**config, "hidden_act": "relu2"}, stored)


def test_rows_with_factors(tmp_path: Path) -> None:
    """Falcon-H1: gates, inputs, weights of states and time steps, each with its own."""
    config = {
        "architectures": ["FalconH1ForCausalLM"], "mamba_d_ssm": 4, "mamba_n_groups": 1,
        "mamba_d_state": 3, "ssm_in_multiplier": 2.0, "ssm_multipliers": [1.0, 2.0, 3.0, 4.0, 5.0],
    }  # fmt: skip
    stored = random(4 + 4 + 3 + 3 + 2, 5)
    found = planned(tmp_path, config, {"model.layers.0.mamba.in_proj.weight": stored})
    factors = np.repeat([2.0, 4.0, 6.0, 8.0, 10.0], [4, 4, 3, 3, 2]).astype("f4")
    np.testing.assert_array_equal(
        values_of(found["blk.0.ssm_in.weight"]), stored * factors[:, None]
    )
    with pytest.raises(ConversionError, match=r"in_proj.weight has the shape \(13, 5\)"):
        planned(tmp_path, config, {"model.layers.0.mamba.in_proj.weight": stored[:13]})


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        ({"architectures": [NEMOTRON], "hybrid_override_pattern": "M-M*-"}, "nemotron_h"),
        ({"architectures": [NEMOTRON], "hybrid_override_pattern": "ME*E"}, "nemotron_h_moe"),
        ({"architectures": ["NomicBertModel"]}, "nomic-bert"),
        ({"architectures": ["NomicBertModel"], "moe_every_n_layers": 2}, "nomic-bert-moe"),
        ({"architectures": ["Mistral3ForConditionalGeneration"]}, "mistral3"),
        (
            {
                "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
                "text_config": {"model_type": "mistral4", "kv_lora_rank": 256},
            },
            "mistral4",
        ),
        (
            {
                "architectures": ["GraniteMoeHybridForCausalLM"], "num_hidden_layers": 2,
                "num_attention_heads": 4, "layer_types": ["attention", "attention"],
                "position_embedding_type": "rope", "num_local_experts": 8,
            },
            "granitemoe",
        ),
        (
            {
                "architectures": ["GraniteMoeHybridForCausalLM"], "num_hidden_layers": 2,
                "num_attention_heads": 4, "layer_types": ["mamba", "attention"],
                "position_embedding_type": "nope", "num_local_experts": 0,
            },
            "granitehybrid",
        ),
    ],
)  # fmt: skip
def test_a_class_of_several_architectures(config: dict[str, Any], architecture: str) -> None:
    found, _, _ = stored_form(config, config["architectures"][0])
    assert found == architecture


def test_layers_for_further_tokens_that_have_no_place(tmp_path: Path) -> None:
    """Where the architecture has no such layers, they are left out; where it has, they follow."""
    stored = {"mtp.fc.weight": random(4, 8), "mtp.layers.0.mlp.up_proj.weight": random(6, 4)}
    assert planned(tmp_path, {"architectures": ["Qwen3NextForCausalLM"]}, stored) == {}
    config = {"architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 3}
    found = planned(tmp_path, config, stored)
    assert found.keys() == {"blk.3.nextn.eh_proj.weight", "blk.3.ffn_up.weight"}


def test_unequal_intervals_of_attention() -> None:
    config = {
        "architectures": ["Qwen3_5ForCausalLM"], "num_hidden_layers": 4, "hidden_size": 8,
        "linear_num_value_heads": 2,
        "layer_types": ["linear_attention", "full_attention", "full_attention", "linear_attention"],
    }  # fmt: skip
    _, checkpoint, settings = stored_form(config, "Qwen3_5ForCausalLM")
    with pytest.raises(ConversionError, match="equal intervals"):
        network_keys(checkpoint, settings)


def test_a_matrix_is_read_in_any_order(tmp_path: Path) -> None:
    """Rows of transposed blocks that are not consecutive."""
    stored = random(6, 4)
    write_safetensors(tmp_path / "x", {"a": stored})
    matrix = PlainMatrix(read_safetensors(tmp_path / "x")["a"])
    turned = TransposedBlocks(matrix, np.arange(6), 3)
    whole = stored.reshape(2, 3, 4).swapaxes(1, 2).reshape(-1, 3)
    np.testing.assert_array_equal(turned.read(np.array([7, 1, 4])), whole[[7, 1, 4]])
