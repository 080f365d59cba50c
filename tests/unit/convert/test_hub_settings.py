"""Settings as repositories of the hub state them, in the form of older versions of transformers.

What a file must say about each model is known from its published GGUF files.
"""

import math
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np
import pytest

from ingot.convert.conversion import stored_form
from ingot.convert.keys import network_keys, rope_tensors
from ingot.errors import ConversionError, IngotError
from ingot.models.settings import Settings


def settings_of(config: dict[str, Any]) -> Settings:
    return stored_form(config, config["architectures"][0])[2]


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    _, checkpoint, settings = stored_form(config, config["architectures"][0])
    return network_keys(checkpoint, settings)


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
    "DeepSeek V3": (
        {
            "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "vocab_size": 129280,
            "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
            "topk_group": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
            "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000,
            "max_position_embeddings": 163840,
            "rope_scaling": {
                "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
                "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn",
            },
        },
        {
            "block_count": 61, "attention.head_count": 128, "attention.head_count_kv": 1,
            "attention.key_length": 576, "attention.value_length": 512,
            "attention.key_length_mla": 192, "attention.value_length_mla": 128,
            "attention.q_lora_rank": 1536, "attention.kv_lora_rank": 512,
            "rope.dimension_count": 64, "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
            "rope.scaling.original_context_length": 4096, "rope.scaling.yarn_log_multiplier": 0.1,
            "rope.scaling.yarn_beta_fast": 32.0, "expert_count": 256, "expert_used_count": 8,
            "expert_shared_count": 1, "expert_feed_forward_length": 2048,
            "leading_dense_block_count": 3, "expert_gating_func": 2, "expert_weights_norm": True,
            "expert_weights_scale": 2.5, "expert_group_count": 8, "expert_group_used_count": 4,
        },
    ),
    "Qwen 3.5": (
        {
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 8,
                "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
                "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                "linear_value_head_dim": 128, "full_attention_interval": 4,
                "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
                "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
                "rope_parameters": {
                    "mrope_interleaved": True, "mrope_section": [11, 11, 10],
                    "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default",
                },
            },
        },
        {
            "block_count": 8, "attention.key_length": 256, "rope.dimension_count": 64,
            "rope.dimension_sections": [11, 11, 10, 0], "rope.freq_base": 1e7,
            "full_attention_interval": 4, "ssm.conv_kernel": 4, "ssm.state_size": 128,
            "ssm.group_count": 16, "ssm.time_step_rank": 32, "ssm.inner_size": 4096,
        },
    ),
    "MPT 7B": (
        {
            "architectures": ["MPTForCausalLM"], "d_model": 4096, "n_heads": 32, "n_layers": 32,
            "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True,
            "logit_scale": None, "learned_pos_emb": True, "norm_type": "low_precision_layernorm",
            "attn_config": {
                "alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "clip_qkv": None,
                "attn_type": "multihead_attention", "prefix_lm": False, "qk_ln": False,
                "softmax_scale": None,
            },
        },
        {
            "block_count": 32, "context_length": 2048, "embedding_length": 4096,
            "feed_forward_length": 16384, "attention.head_count": 32,
            "attention.head_count_kv": 32, "attention.layer_norm_epsilon": 1e-5,
            "attention.max_alibi_bias": 8.0, "attention.clamp_kqv": None,
        },
    ),
    "SmallThinker 21B": (
        {
            "architectures": ["SmallThinkerForCausalLM"], "hidden_size": 2560, "head_dim": 128,
            "num_hidden_layers": 8, "num_attention_heads": 28, "num_key_value_heads": 4,
            "moe_num_primary_experts": 64, "moe_num_active_primary_experts": 6,
            "moe_ffn_hidden_size": 768, "moe_primary_router_apply_softmax": False,
            "moe_enable_early_router": True, "norm_topk_prob": True, "rms_norm_eps": 1e-6,
            "sliding_window_layout": [0, 1, 1, 1] * 2, "rope_layout": [0, 1, 1, 1] * 2,
            "sliding_window_size": 4096, "max_position_embeddings": 16384, "vocab_size": 151936,
            "rope_theta": 1500000.0, "tie_word_embeddings": False,
        },
        {
            "expert_count": 64, "expert_used_count": 6, "expert_feed_forward_length": 768,
            "expert_gating_func": 2, "attention.sliding_window": 4096, "rope.freq_base": 1.5e6,
        },
    ),
    "PLM 1.8B": (
        {
            "architectures": ["PLMForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
            "hidden_act": "relu2", "kv_lora_rank": 512, "q_lora_rank": None,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 32,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 100000.0,
            "tie_word_embeddings": True, "vocab_size": 151936,
        },
        {
            "attention.kv_lora_rank": 512, "attention.key_length": 192,
            "attention.value_length": 128, "rope.dimension_count": 64, "rope.freq_base": 1e5,
        },
    ),
    "DeepSeekMoE 16B": (
        {
            "architectures": ["DeepseekForCausalLM"], "hidden_size": 2048, "vocab_size": 102400,
            "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 28,
            "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
            "moe_layer_freq": 1, "norm_topk_prob": False, "scoring_func": "softmax",
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_scaling": None,
            "rope_theta": 10000, "tie_word_embeddings": False,
        },
        {
            "expert_count": 64, "expert_used_count": 6, "expert_shared_count": 2,
            "expert_feed_forward_length": 1408, "leading_dense_block_count": 1,
            "feed_forward_length": 10944, "rope.dimension_count": 128, "rope.freq_base": 10000.0,
        },
    ),
    "K-EXAONE": (
        {
            "architectures": ["ExaoneMoEForCausalLM"], "hidden_size": 6144, "head_dim": 128,
            "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 8,
            "num_attention_heads": 64, "num_key_value_heads": 8, "num_experts": 128,
            "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1,
            "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
            "scoring_func": "sigmoid", "num_nextn_predict_layers": 1, "sliding_window": 128,
            "sliding_window_pattern": "LLLG", "max_position_embeddings": 262144,
            "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
            "rms_norm_eps": 1e-5, "vocab_size": 153600,
            "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
        },
        {
            "attention.sliding_window": 128, "leading_dense_block_count": 1,
            "attention.sliding_window_pattern": ([True] * 3 + [False]) * 2,
            "expert_count": 128, "expert_shared_feed_forward_length": 2048,
            "expert_weights_scale": 2.5, "expert_gating_func": 2, "rope.freq_base": 1e6,
        },
    ),
    "Qwen 2.5 VL": (
        {
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 3584,
            "intermediate_size": 18944, "max_position_embeddings": 128000, "vocab_size": 152064,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
            "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 32768,
            "use_sliding_window": False, "tie_word_embeddings": False,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
            "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16},
        },
        {
            "embedding_length": 3584, "block_count": 28, "attention.head_count": 28,
            "rope.dimension_sections": [16, 24, 24, 0], "rope.dimension_count": 128,
            "rope.freq_base": 1e6, "rope.scaling.type": None, "attention.sliding_window": None,
        },
    ),
    "Qwen 3 VL 30B-A3B": (
        {
            "architectures": ["Qwen3VLMoeForConditionalGeneration"],
            "text_config": {
                "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
                "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
                "norm_topk_prob": True, "max_position_embeddings": 262144, "rms_norm_eps": 1e-6,
                "rope_theta": 5000000, "vocab_size": 151936, "tie_word_embeddings": True,
                "rope_scaling": {
                    "mrope_interleaved": True, "mrope_section": [24, 20, 20],
                    "rope_type": "default",
                },
            },
            "tie_word_embeddings": False,
            "vision_config": {"depth": 27, "deepstack_visual_indexes": [8, 16, 24]},
        },
        {
            "attention.key_length": 128, "expert_count": 128, "expert_used_count": 8,
            "expert_feed_forward_length": 768, "rope.dimension_sections": [24, 20, 20, 0],
            "rope.freq_base": 5e6, "n_deepstack_layers": 3, "rope.scaling.type": None,
        },
    ),
    "Gemma 3n E4B": (
        {
            "architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
            "text_config": {
                "hidden_size": 2048, "intermediate_size": [16384] * 5, "num_hidden_layers": 5,
                "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
                "activation_sparsity_pattern": [0.95] * 2 + [0.0] * 3, "altup_active_idx": 0,
                "altup_num_inputs": 4, "hidden_size_per_layer_input": 256, "sliding_window": 512,
                "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
                "num_kv_shared_layers": 2, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
                "rope_local_base_freq": 10000.0, "final_logit_softcapping": 30.0,
                "max_position_embeddings": 32768, "vocab_size": 262400,
            },
        },
        {
            "feed_forward_length": [16384] * 5, "altup.num_inputs": 4, "altup.active_idx": 0,
            "attention.sliding_window_pattern": [True] * 4 + [False],
            "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 256,
            "activation_sparsity_scale": [1.6448536269514722] * 2 + [-math.inf] * 3,
            "rope.freq_base_swa": 10000.0, "rope.freq_base": 1e6,
        },
    ),
    "Gemma 4": (
        {
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "text_config": {
                "hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 6,
                "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
                "global_head_dim": 512, "num_global_key_value_heads": 2, "num_experts": 128,
                "top_k_experts": 8, "moe_intermediate_size": 704, "sliding_window": 1024,
                "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
                "num_kv_shared_layers": 0, "hidden_size_per_layer_input": None,
                "rms_norm_eps": 1e-6, "max_position_embeddings": 262144,
                "final_logit_softcapping": 30.0,
                "rope_parameters": {
                    "full_attention": {
                        "partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                        "rope_type": "proportional",
                    },
                    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
                },
            },
        },
        {
            "attention.head_count_kv": [8] * 5 + [2], "attention.key_length": 512,
            "attention.key_length_swa": 256, "attention.value_length": 512,
            "rope.dimension_count": 512, "rope.dimension_count_swa": 256, "expert_count": 128,
            "expert_used_count": 8, "expert_feed_forward_length": 704,
            "embedding_length_per_layer_input": 0, "attention.shared_kv_layers": 0,
            "rope.freq_base": 1e6, "rope.freq_base_swa": 10000.0,
        },
    ),
    "Nemotron Nano 2": (
        {
            "architectures": ["NemotronHForCausalLM"], "hidden_size": 4480, "head_dim": 128,
            "intermediate_size": 15680, "hybrid_override_pattern": "M-M*-", "vocab_size": 131072,
            "num_hidden_layers": 5, "num_attention_heads": 40, "num_key_value_heads": 8,
            "mamba_num_heads": 128, "mamba_head_dim": 80, "ssm_state_size": 128, "n_groups": 8,
            "conv_kernel": 4, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 131072,
        },
        {
            "attention.head_count_kv": [0, 0, 0, 8, 0], "ssm.inner_size": 10240,
            "feed_forward_length": [0, 15680, 0, 0, 15680], "ssm.group_count": 8,
            "ssm.time_step_rank": 128, "attention.layer_norm_rms_epsilon": 1e-5,
            "expert_count": None, "attention.key_length": 128,
        },
    ),
    "Granite 4 H Tiny": (
        {
            "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 1536,
            "intermediate_size": 512, "shared_intermediate_size": 1024, "num_hidden_layers": 3,
            "num_attention_heads": 12, "num_key_value_heads": 4, "num_local_experts": 64,
            "num_experts_per_tok": 6, "layer_types": ["mamba", "mamba", "attention"],
            "position_embedding_type": "nope", "mamba_d_conv": 4, "mamba_d_state": 128,
            "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48, "mamba_d_head": 64,
            "attention_multiplier": 0.0078125, "embedding_multiplier": 12,
            "logits_scaling": 6, "residual_multiplier": 0.22, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072, "rope_theta": 10000,
        },
        {
            "attention.head_count_kv": [0, 0, 4], "rope.scaling.finetuned": False,
            "expert_count": 64, "expert_used_count": 6, "feed_forward_length": 512,
            "expert_shared_feed_forward_length": 1024, "ssm.inner_size": 3072,
            "embedding_scale": 12.0, "attention.scale": 0.0078125, "logit_scale": 6.0,
        },
    ),
    "ModernBERT": (
        {
            "architectures": ["ModernBertForMaskedLM"], "hidden_size": 768, "local_attention": 128,
            "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12,
            "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
            "local_rope_theta": 10000.0, "norm_eps": 1e-5, "layer_norm_eps": 1e-5,
            "max_position_embeddings": 8192,
        },
        {
            "attention.sliding_window": 128, "attention.sliding_window_pattern": 3,
            "rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0, "attention.causal": False,
            "attention.layer_norm_epsilon": 1e-5,
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
    "T5 small": (
        {
            "architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64,
            "d_model": 512, "decoder_start_token_id": 0, "eos_token_id": 1, "n_positions": 512,
            "layer_norm_epsilon": 1e-6, "num_heads": 8, "num_layers": 6, "pad_token_id": 0,
            "relative_attention_num_buckets": 32, "vocab_size": 32128,
        },
        {
            "block_count": 6, "decoder_block_count": 6, "context_length": 512,
            "embedding_length": 512, "feed_forward_length": 2048, "attention.head_count": 8,
            "attention.key_length": 64, "attention.value_length": 64,
            "attention.relative_buckets_count": 32, "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.layer_norm_epsilon": 1e-6, "decoder_start_token_id": 0,
        },
    ),
    "the encoder of T5 1.1 XXL": (
        {
            "architectures": ["T5EncoderModel"], "d_ff": 10240, "d_kv": 64, "d_model": 4096,
            "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-6, "num_heads": 64,
            "num_layers": 24, "relative_attention_num_buckets": 32, "tie_word_embeddings": False,
            "relative_attention_max_distance": 128, "vocab_size": 32128,
        },
        {
            "block_count": 24, "attention.head_count": 64, "feed_forward_length": 10240,
            "decoder_block_count": None, "decoder_start_token_id": None, "context_length": 512,
        },
    ),
    "Jina Embeddings 2": (
        {
            "architectures": ["JinaBertForMaskedLM"], "hidden_size": 768,
            "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "feed_forward_type": "geglu", "position_embedding_type": "alibi",
            "layer_norm_eps": 1e-12, "max_position_embeddings": 8192, "type_vocab_size": 2,
            "vocab_size": 30528,
        },
        {
            "attention.causal": False, "context_length": 8192, "feed_forward_length": 3072,
            "tokenizer.ggml.token_type_count": 2, "attention.layer_norm_epsilon": 1e-12,
        },
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
    factors = rope_tensors(settings_of(LLAMA31), 128)["rope_freqs.weight"]
    assert factors.shape == (64,)
    assert (factors[0], factors[-1]) == (1.0, 8.0)
    assert (np.diff(factors) >= 0).all()


def test_rope_factors_of_phi() -> None:
    found = rope_tensors(settings_of(PHI35), 96)
    assert {name: values.shape for name, values in found.items()} == {
        "rope_factors_short.weight": (48,),
        "rope_factors_long.weight": (48,),
    }


ODD: list[Any] = [None, 0, -1, 3, 1.5, 2**70, True, "", "x", [], {}, [1], [None], {"a": 1}, ["moe"]]


@pytest.mark.parametrize("name", CASES)
def test_settings_changed_at_random(name: str) -> None:
    """Keys, or an error of Ingot's own."""
    rng = Random(name)
    for _ in range(150):
        config = deepcopy(CASES[name][0])
        text = config.get("text_config", config)
        inner = [value for value in text.values() if isinstance(value, dict)]
        inner += [value for part in inner for value in part.values() if isinstance(value, dict)]
        for part in (text, rng.choice([text, *inner])):
            part[rng.choice(sorted(set(part) - {"architectures"}))] = rng.choice(ODD)
        try:
            keys = keys_of(config)
            size = keys.get("rope.dimension_count")
            rope_tensors(settings_of(config), size if isinstance(size, int) else 64)
        except IngotError:
            continue


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Qwen 2.5 VL", {"use_sliding_window": True, "max_window_layers": 1}),
        ("Qwen 2.5", {"use_sliding_window": True, "max_window_layers": 21}),
        ("Qwen 2.5", {"layer_types": ["full_attention", "sliding_attention"] * 14}),
        ("SmallThinker 21B", {"moe_enable_early_router": False}),
        ("SmallThinker 21B", {"rope_layout": [1] * 8}),
        ("SmallThinker 21B", {"sliding_window_layout": [0, 0, 1, 1] * 2}),
        ("MPT 7B", {"logit_scale": 2.0}),
        ("MPT 7B", {"attn_config": {"alibi": True, "qk_ln": True}}),
        ("DeepSeekMoE 16B", {"moe_layer_freq": 2}),
        ("DeepSeekMoE 16B", {"norm_topk_prob": True}),
        ("T5 small", {"relative_attention_max_distance": 64}),
        ("T5 small", {"feed_forward_proj": "gated-silu"}),
        ("the encoder of T5 1.1 XXL", {"feed_forward_proj": "gelu"}),
        ("Jina Embeddings 2", {"feed_forward_type": "reglu"}),
        ("Jina Embeddings 2", {"position_embedding_type": "absolute"}),
    ],
)
def test_settings_that_no_file_can_state(name: str, change: dict[str, Any]) -> None:
    config = {**CASES[name][0], **change}
    with pytest.raises(ConversionError, match="fit no form"):
        keys_of(config)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("Qwen2MoeForCausalLM", {"norm_topk_prob": False}),
        ("Qwen3MoeForCausalLM", {"norm_topk_prob": True}),
        ("Qwen3ForSequenceClassification", {"num_hidden_layers": 4}),
    ],
)
def test_windows_that_files_of_the_class_lack(model: str, config: dict[str, Any]) -> None:
    stored_form({**config, "use_sliding_window": False, "sliding_window": 128}, model)
    with pytest.raises(ConversionError, match="fit no form"):
        stored_form({**config, "use_sliding_window": True, "sliding_window": 128}, model)


def test_residuals_of_bloom_that_no_file_can_state() -> None:
    name = "apply_residual_connection_post_layernorm"
    stored_form({name: False}, "BloomForCausalLM")
    with pytest.raises(ConversionError, match="fit no form"):
        stored_form({name: True}, "BloomForCausalLM")


def test_windows_that_no_layer_has_are_no_windows() -> None:
    config = {**CASES["Qwen 2.5"][0], "use_sliding_window": True, "max_window_layers": 28}
    assert keys_of(config) == keys_of(CASES["Qwen 2.5"][0])
    kinds = {"layer_types": ["full_attention"] * 28}
    assert keys_of({**config, "max_window_layers": 0, **kinds}) == keys_of(config)


@pytest.mark.parametrize(
    ("model", "normalized"),
    [("Qwen3MoeForCausalLM", True), ("Qwen2MoeForCausalLM", False), ("OlmoeForCausalLM", False)],
)
def test_weights_of_experts_that_no_file_can_state(model: str, normalized: bool) -> None:
    """Files of these architectures do not say whether the weights add up to one."""
    stored_form({"norm_topk_prob": normalized}, model)
    with pytest.raises(ConversionError, match="fit no form"):
        stored_form({"norm_topk_prob": not normalized}, model)
