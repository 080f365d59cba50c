"""Settings as repositories of the hub state them, in the form of older versions of transformers.

What a file must say about each model is known from its published GGUF files.
"""

import math
from typing import Any

import numpy as np
import pytest

from ingot.convert.keys import network_keys, rope_tensors
from ingot.models import checkpoints
from ingot.models.settings import Settings


def settings_of(config: dict[str, Any]) -> Settings:
    _, checkpoint = checkpoints()[config["architectures"][0]]
    return Settings.of(config, checkpoint.defaults)


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    _, checkpoint = checkpoints()[config["architectures"][0]]
    return network_keys(checkpoint, settings_of(config))


LLAMA31: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "vocab_size": 128256,
    "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3",
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
PHI35: dict[str, Any] = {
    "architectures": ["Phi3ForCausalLM"], "hidden_size": 3072, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 262144, "vocab_size": 32064,
    "rope_scaling": {"long_factor": [2.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Llama 3.1": (
        LLAMA31,
        {
            "block_count": 32, "context_length": 131072, "embedding_length": 4096,
            "feed_forward_length": 14336, "attention.head_count": 32,
            "attention.head_count_kv": 8, "rope.freq_base": 500000.0, "vocab_size": 128256,
            "rope.dimension_count": 128, "attention.layer_norm_rms_epsilon": 1e-5,
        },
    ),
    "Qwen 2.5": (
        {
            "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "num_hidden_layers": 28,
            "intermediate_size": 18944, "max_position_embeddings": 32768, "vocab_size": 152064,
            "num_attention_heads": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0, "sliding_window": 131072, "use_sliding_window": False,
        },
        {"attention.head_count_kv": 4, "rope.freq_base": 1e6, "attention.sliding_window": None},
    ),
    "Mistral 7B 0.1": (
        {**LLAMA31, "architectures": ["MistralForCausalLM"], "rope_scaling": None,
         "rope_theta": 10000.0, "sliding_window": 4096},
        {"rope.freq_base": 10000.0, "attention.sliding_window": None, "rope.scaling.type": None},
    ),
    "Mixtral": (
        {**LLAMA31, "architectures": ["MixtralForCausalLM"], "rope_scaling": None,
         "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
        {"expert_count": 8, "expert_used_count": 2},
    ),
    "Gemma 3 4B": (
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
            },
            "vision_config": {"hidden_size": 1152, "num_attention_heads": 16},
        },
        {
            "block_count": 34, "embedding_length": 2560, "attention.head_count": 8,
            "attention.head_count_kv": 4, "attention.key_length": 256, "rope.freq_base": 1e6,
            "rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "context_length": 131072,
            "attention.sliding_window": 1024, "attention.layer_norm_rms_epsilon": 1e-6,
        },
    ),
    "Phi 3.5": (
        PHI35,
        {
            "rope.scaling.original_context_length": 4096, "attention.sliding_window": 262144,
            "rope.scaling.attn_factor": math.sqrt(1 + math.log(32) / math.log(4096)),
        },
    ),
    "gpt-oss 20B": (
        {
            "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "head_dim": 64,
            "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
            "num_key_value_heads": 8, "num_local_experts": 32, "num_experts_per_tok": 4,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "sliding_window": 128,
            "rope_theta": 150000, "vocab_size": 201088,
            "rope_scaling": {
                "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
                "original_max_position_embeddings": 4096, "truncate": False,
            },
        },
        {
            "attention.key_length": 64, "expert_count": 32, "expert_used_count": 4,
            "expert_feed_forward_length": 2880, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 4096,
            "attention.sliding_window": 128, "rope.freq_base": 150000.0,
        },
    ),
    "Phi-2": (
        {
            "architectures": ["PhiForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 32, "num_attention_heads": 32, "layer_norm_eps": 1e-5,
            "max_position_embeddings": 2048, "partial_rotary_factor": 0.4, "rope_theta": 10000.0,
        },
        {"rope.dimension_count": 32, "attention.layer_norm_epsilon": 1e-5},
    ),
    "Pythia": (
        {
            "architectures": ["GPTNeoXForCausalLM"], "hidden_size": 512, "num_hidden_layers": 6,
            "intermediate_size": 2048, "num_attention_heads": 8, "layer_norm_eps": 1e-5,
            "max_position_embeddings": 2048, "rotary_emb_base": 10000, "rotary_pct": 0.25,
            "use_parallel_residual": True,
        },
        {"rope.dimension_count": 16, "rope.freq_base": 10000.0, "use_parallel_residual": True},
    ),
    "Falcon 7B": (
        {
            "architectures": ["FalconForCausalLM"], "hidden_size": 4544, "num_hidden_layers": 32,
            "num_attention_heads": 71, "layer_norm_epsilon": 1e-5, "multi_query": True,
            "new_decoder_architecture": False, "vocab_size": 65024,
        },
        {"attention.head_count_kv": 1, "feed_forward_length": 18176, "context_length": 2048},
    ),
    "Qwen 1": (
        {
            "architectures": ["QWenLMHeadModel"], "hidden_size": 4096, "num_hidden_layers": 32,
            "intermediate_size": 22016, "num_attention_heads": 32, "layer_norm_epsilon": 1e-6,
            "seq_length": 8192, "rotary_emb_base": 10000, "vocab_size": 151936,
        },
        {
            "context_length": 8192, "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.layer_norm_epsilon": None, "rope.dimension_count": 128,
        },
    ),
    "GPT-2": (
        {
            "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
            "n_positions": 1024, "layer_norm_epsilon": 1e-5, "vocab_size": 50257,
        },
        {"feed_forward_length": 3072, "context_length": 1024, "rope.freq_base": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_the_file_says(name: str) -> None:
    config, expected = CASES[name]
    found = keys_of(config)
    for key, value in expected.items():
        if value is None:
            assert key not in found
        else:
            assert found[key] == pytest.approx(value), key


def test_the_settings_of_the_language_model_win() -> None:
    config = {**LLAMA31, "text_config": {"hidden_size": 512, "rope_theta": None}}
    found = keys_of(config)
    assert (found["embedding_length"], found["rope.freq_base"]) == (512, 500000.0)


def test_rope_factors_of_llama() -> None:
    factors = rope_tensors(settings_of(LLAMA31))["rope_freqs.weight"]
    assert factors.shape == (64,)
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    assert (np.diff(factors) >= 0).all()


def test_rope_factors_of_phi() -> None:
    found = rope_tensors(settings_of(PHI35))
    assert {name: values.shape for name, values in found.items()} == {
        "rope_factors_short.weight": (48,),
        "rope_factors_long.weight": (48,),
    }
