"""Recipes of models with multi-head latent attention (see recipes.py)."""

from dataclasses import replace
from typing import Any

import numpy as np

from models.recipe import Floats, Joined, Recipe, changed, long_rope_factors
from models.recipes_corrected_experts import CORRECTED_NAMES, SIGMOID
from models.recipes_experts import GATE_UP

SOFTMAX = 1  # llama.cpp's number of this gating
HEADS, KEY, VALUE, LATENT, ROTARY = 6, 22, 14, 36, 8
NAMES = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    **CORRECTED_NAMES,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
SIZES = {
    "hidden_size": 96,
    "intermediate_size": 90,
    "moe_intermediate_size": 36,
    "num_hidden_layers": 4,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "q_lora_rank": 26,
    "kv_lora_rank": LATENT,
    "qk_nope_head_dim": KEY,
    "qk_rope_head_dim": ROTARY,
    "v_head_dim": VALUE,
    "n_routed_experts": 12,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}


def keys_and_values(keys: Floats, values: Floats) -> Floats:
    """The rows of a head: those that make its key, then those that make its value."""
    both = np.concatenate([keys.swapaxes(1, 2), values], axis=1)
    return both.reshape(-1, both.shape[-1])


def split(heads: int, key: int, value: int) -> Joined:
    """What converters make of the matrix for keys and values."""
    return Joined(
        ("attn_k_b.weight", "attn_v_b.weight"),
        lambda _, latent: [(heads, latent, key), (heads, value, latent)],
        keys_and_values,
    )


def keys(config: Any) -> dict[str, int | float | str | None]:
    """The keys that converters write for all of them."""
    rope = config.rope_parameters
    return {
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": config.q_lora_rank,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim,
        "attention.value_length": config.kv_lora_rank,
        "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim,
        "attention.value_length_mla": config.v_head_dim,
        "rope.dimension_count": config.qk_rope_head_dim,
        "rope.scaling.yarn_log_multiplier": (
            0.1 * rope["mscale_all_dim"] if "mscale_all_dim" in rope else None
        ),
        "expert_shared_count": config.n_shared_experts,
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_gating_func": SOFTMAX,
        "expert_weights_norm": config.norm_topk_prob,
        "expert_weights_scale": config.routed_scaling_factor,
        "expert_group_count": config.n_group,
        "expert_group_used_count": config.topk_group,
    }


V2 = Recipe(
    architecture="deepseek2",
    model="DeepseekV2ForCausalLM",
    config={
        **SIZES,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
        "rope_parameters": YARN,
    },
    metadata=keys,
    names=NAMES,
    joined={
        "self_attn.kv_b_proj.weight": split(HEADS, KEY, VALUE),
        "mlp.experts.gate_up_proj": GATE_UP,
    },
)
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
V3 = replace(
    changed(
        V2,
        {
            "topk_method": "noaux_tc",
            "norm_topk_prob": True,
            "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "factor": 4.0},
        },
    ),
    model="DeepseekV3ForCausalLM",
    metadata=lambda c: {**keys(c), "expert_gating_func": SIGMOID},
)


def with_squared_relu(model: Any) -> None:
    """A network without a gate."""
    for layer in model.model.layers:
        mlp = layer.mlp
        mlp.forward = lambda x, mlp=mlp: mlp.down_proj(mlp.up_proj(x).relu() ** 2)


# Indexers: fewer positions than a text has, and so many heads that scores are not often equal.
# Their size is one that llama.cpp can rotate.
INDEXED = replace(
    changed(
        V3,
        {"index_topk": 17, "index_head_dim": 64, "index_n_heads": 7, "topk_method": None},
    ),
    metadata=lambda c: {
        **keys(c),
        "expert_gating_func": SIGMOID,
        "attention.indexer.head_count": c.index_n_heads,
        "attention.indexer.key_length": c.index_head_dim,
        "attention.indexer.top_k": c.index_topk,
        "attention.indexer.types": (
            [kind == "full" for kind in c.indexer_types] if hasattr(c, "indexer_types") else None
        ),
    },
    names={
        "self_attn.indexer.wq_b": "indexer.attn_q_b",
        "self_attn.indexer.wk": "indexer.attn_k",
        "self_attn.indexer.k_norm": "indexer.k_norm",
        "self_attn.indexer.weights_proj": "indexer.proj",
        **NAMES,
    },
)
LATENTS: dict[str, Recipe] = {
    "deepseek32": replace(INDEXED, architecture="deepseek32", model="DeepseekV32ForCausalLM"),
    "glm-dsa": replace(
        changed(
            INDEXED,
            {
                "n_group": 1,
                "topk_group": 1,
                "num_hidden_layers": 5,
                "rope_parameters": PLAIN_ROPE,
                "indexer_types": ["full", "shared", "full", "full", "shared"],
            },
        ),
        architecture="glm-dsa",
        model="GlmMoeDsaForCausalLM",
    ),
    # transformers has no class for it; what it computes is DeepSeek V2 with another network.
    "plm": Recipe(
        architecture="plm",
        model="DeepseekV2ForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 3,
            "first_k_dense_replace": 3,
            "q_lora_rank": None,
            "tie_word_embeddings": True,
            "rope_parameters": PLAIN_ROPE,
        },
        metadata=lambda c: {
            "attention.kv_lora_rank": c.kv_lora_rank,
            "attention.key_length": c.qk_nope_head_dim + c.qk_rope_head_dim,
            "attention.value_length": c.v_head_dim,
            "rope.dimension_count": c.qk_rope_head_dim,
            "expert_count": None,
            "expert_used_count": None,
            "expert_feed_forward_length": None,
        },
        names={**NAMES, "self_attn.kv_b_proj": "attn_kv_b"},
        left_out=("mlp.gate_proj",),
        adjust=with_squared_relu,
    ),
    "minicpm3": Recipe(
        architecture="minicpm3",
        model="MiniCPM3ForCausalLM",
        config={
            "hidden_size": 96,
            "intermediate_size": 90,
            "rms_norm_eps": 1e-6,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "q_lora_rank": 26,
            "kv_lora_rank": LATENT,
            "qk_nope_head_dim": KEY,
            "qk_rope_head_dim": ROTARY,
            "v_head_dim": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "original_max_position_embeddings": 256,
                "short_factor": [1 + 0.2 * pair for pair in range(ROTARY // 2)],
                "long_factor": [1.5 + 0.7 * pair for pair in range(ROTARY // 2)],
            },
        },
        metadata=lambda c: {
            "attention.q_lora_rank": c.q_lora_rank,
            "attention.kv_lora_rank": c.kv_lora_rank,
            "attention.key_length": c.qk_nope_head_dim + c.qk_rope_head_dim,
            "attention.value_length": None,
            "rope.dimension_count": c.qk_rope_head_dim,
        },
        names={**NAMES, "self_attn.kv_b_proj": "attn_kv_b"},
        constants=long_rope_factors,
    ),
    # GLM 4.7 Flash; files have one epsilon for all norms.
    "deepseek2-glm": replace(
        changed(
            V2,
            {
                "topk_method": None,
                "norm_topk_prob": True,
                "n_group": 1,
                "topk_group": 1,
                "first_k_dense_replace": None,
                "rms_norm_eps": 1e-6,
                "mlp_layer_types": ["dense"] + ["sparse"] * 3,
                "rope_parameters": PLAIN_ROPE,
            },
        ),
        model="Glm4MoeLiteForCausalLM",
        metadata=lambda c: {
            **keys(c),
            "leading_dense_block_count": 1,
            "expert_gating_func": SIGMOID,
        },
    ),
    "mistral4": replace(
        changed(
            V2,
            {
                "n_group": 2,
                "topk_group": 1,
                "norm_topk_prob": True,
                "first_k_dense_replace": 0,
                "rope_parameters": {
                    **YARN,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                    "llama_4_scaling_beta": 0.3,
                },
            },
        ),
        architecture="mistral4",
        model="Mistral4ForCausalLM",
        metadata=lambda c: {
            **keys(c),
            "attention.temperature_scale": c.rope_parameters["llama_4_scaling_beta"],
            "attention.temperature_length": c.rope_parameters["original_max_position_embeddings"],
        },
    ),
    "deepseek2": V2,
    "deepseek2-v3": V3,
    # As Kimi K2: more experts, in one group.
    "deepseek2-kimi": changed(
        V3, {"n_group": 1, "topk_group": 1, "n_routed_experts": 48, "num_experts_per_tok": 8}
    ),
    # A file of the older kind: no query rank, no groups, rows of whole blocks. Layers as many as
    # the model has by which llama.cpp knows it.
    "deepseek2-lite": replace(
        changed(
            V2,
            {
                "hidden_size": 64,
                "intermediate_size": 64,
                "moe_intermediate_size": 32,
                "num_hidden_layers": 27,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "n_routed_experts": 4,
                "num_experts_per_tok": 2,
                "q_lora_rank": None,
                "kv_lora_rank": 64,
                "qk_nope_head_dim": 32,
                "qk_rope_head_dim": 32,
                "v_head_dim": 32,
                "topk_method": "greedy",
                "n_group": None,
                "topk_group": None,
                "rope_parameters": PLAIN_ROPE,
            },
        ),
        metadata=lambda c: {
            **keys(c),
            "attention.head_count_kv": c.num_key_value_heads,
            "attention.key_length": 64,
            "attention.value_length": 32,
            "attention.key_length_mla": None,
            "attention.value_length_mla": None,
        },
        names={**NAMES, "self_attn.kv_b_proj": "attn_kv_b"},
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
}
