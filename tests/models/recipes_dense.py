"""Recipes of decoders without experts (see recipes.py)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from models.recipe import (
    LLAMA3,
    TURNED_PAIRS,
    Floats,
    Recipe,
    changed,
    llama3_factors,
)

SIZES = {
    "hidden_size": 60,
    "intermediate_size": 90,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}
PRE_AND_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
TWO_LINEARS = {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
FOUR_TIMES = {"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}


def rope(theta: float = 10000.0, **more: Any) -> dict[str, Any]:
    """Plain rotary positions."""
    return {"rope_type": "default", "rope_theta": theta, **more}


def long_rope(original: int) -> dict[str, Any]:
    """Factors for contexts up to `original` tokens and for longer ones."""
    pairs = range(6)
    scaling = {
        "rope_type": "longrope",
        "rope_theta": 500.0,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": original,
        "short_factor": [1 + 0.1 * pair for pair in pairs],
        "long_factor": [1.5 + 0.7 * pair for pair in pairs],
    }
    return {"original_max_position_embeddings": original, "rope_parameters": scaling}


def long_rope_keys(config: Any) -> dict[str, int | float | str]:
    """How much larger cosines and sines become."""
    original = config.rope_parameters["original_max_position_embeddings"]
    scale = config.max_position_embeddings / original
    factor = math.sqrt(1 + math.log(scale) / math.log(original))
    return {"rope.scaling.attn_factor": factor, "attention.sliding_window": 0}


def long_rope_factors(config: Any) -> dict[str, Floats]:
    """The factors as tensors."""
    return {
        f"rope_factors_{name}.weight": np.array(
            config.rope_parameters[f"{name}_factor"], np.float32
        )
        for name in ("short", "long")
    }


def grouped_heads(values: Floats, heads: int, kv_heads: int) -> Floats:
    """From all queries, keys, values to groups: the queries of a key, the key, its value."""
    rows = values.reshape(heads + 2 * kv_heads, -1, *values.shape[1:])
    query, key, value = np.split(rows, [heads, heads + kv_heads])
    groups = [part.reshape(kv_heads, -1, *rows.shape[1:]) for part in (query, key, value)]
    return np.concatenate(groups, axis=1).reshape(values.shape)


GROUPED_BY_HEAD = {
    f"attn_qkv.{kind}": lambda w, c: grouped_heads(w, c.num_attention_heads, c.num_attention_heads)
    for kind in ("weight", "bias")
}
PHI3 = Recipe(
    architecture="phi3",
    model="Phi3ForCausalLM",
    config={
        **SIZES,
        "hidden_size": 96,
        "sliding_window": 23,
        "rope_parameters": rope(),
    },
    names={"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
)
LONG_PHI3 = replace(
    changed(PHI3, {"sliding_window": None, **long_rope(64)}),
    metadata=long_rope_keys,
    constants=long_rope_factors,
)
GEMMA2 = Recipe(
    architecture="gemma2",
    model="Gemma2ForCausalLM",
    config={
        **SIZES,
        "head_dim": 14,
        "query_pre_attn_scalar": 14,
        "sliding_window": 11,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0,
        "rope_parameters": rope(),
    },
    metadata=lambda c: {
        "attn_logit_softcapping": c.attn_logit_softcapping,
        "final_logit_softcapping": c.final_logit_softcapping,
    },
    names=PRE_AND_POST_NORMS,
    transforms={"norm.weight": lambda w, _: w - 1},
)
# Layers as many as the largest Gemma 2 has, which scales its queries differently.
GEMMA2_LARGEST = {
    "hidden_size": 24,
    "intermediate_size": 30,
    "num_hidden_layers": 46,
    "head_dim": 6,
    "query_pre_attn_scalar": 4,
}
STABLELM = Recipe(
    architecture="stablelm",
    model="StableLmForCausalLM",
    config={**SIZES, "rope_parameters": rope(partial_rotary_factor=0.4)},
    metadata=lambda c: {"use_parallel_residual": c.use_parallel_residual},
)
FALCON = Recipe(
    architecture="falcon",
    model="FalconForCausalLM",
    config={
        "hidden_size": 148,
        "ffn_hidden_size": 100,
        "num_hidden_layers": 3,
        "num_attention_heads": 37,
        "rope_parameters": rope(),
    },
    metadata=lambda _: {"attention.head_count_kv": 1},
    names={
        "transformer.h.": "blk.",
        "transformer.word_embeddings": "token_embd",
        "transformer.ln_f": "output_norm",
        "self_attention.query_key_value": "attn_qkv",
        "self_attention.dense": "attn_output",
        **FOUR_TIMES,
    },
)
LARGE_FALCON: Mapping[str, Any] = {
    "hidden_size": 60,
    "num_attention_heads": 6,
    "new_decoder_architecture": True,
    "num_kv_heads": 2,
}
GPTNEOX = Recipe(
    architecture="gptneox",
    model="GPTNeoXForCausalLM",
    config={
        "hidden_size": 60,
        "intermediate_size": 90,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "rope_parameters": rope(partial_rotary_factor=0.5),
    },
    metadata=lambda c: {"use_parallel_residual": c.use_parallel_residual},
    names={
        "gpt_neox.": "",
        "embed_in": "token_embd",
        "final_layer_norm": "output_norm",
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        **FOUR_TIMES,
    },
    transforms=GROUPED_BY_HEAD,
)
COMMAND_R = Recipe(
    architecture="command-r",
    model="CohereForCausalLM",
    config={**SIZES, "logit_scale": 0.4, "rope_parameters": rope(50000.0)},
    metadata=lambda c: {"logit_scale": c.logit_scale, "rope.scaling.type": "none"},
)
# Layers as many as the larger Command R has, by which llama.cpp knows it.
COMMAND_R_PLUS = {
    "hidden_size": 24,
    "intermediate_size": 30,
    "num_hidden_layers": 64,
    "use_qk_norm": True,
}
OLMO2 = Recipe(
    architecture="olmo2",
    model="Olmo2ForCausalLM",
    config={**SIZES, "rope_parameters": rope(500000.0)},
    names={**PRE_AND_POST_NORMS, **HEAD_NORMS},
)
OLMO3_ROPE = {
    "sliding_attention": rope(5000.0),
    "full_attention": {
        "rope_type": "yarn",
        "rope_theta": 5000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}

DENSE: dict[str, Recipe] = {
    "mistral": Recipe(
        architecture="llama",
        model="MistralForCausalLM",
        config={**SIZES, "head_dim": 16, "sliding_window": None, "rope_parameters": rope(1e6)},
        transforms=TURNED_PAIRS,
    ),
    "qwen3": Recipe(
        architecture="qwen3",
        model="Qwen3ForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope(1e6)},
        names=HEAD_NORMS,
    ),
    "phi3": PHI3,
    "phi3-long": LONG_PHI3,
    "phi3-short": changed(LONG_PHI3, long_rope(128)),
    "gemma": Recipe(
        architecture="gemma",
        model="GemmaForCausalLM",
        config={**SIZES, "head_dim": 14, "num_key_value_heads": 1, "rope_parameters": rope()},
        transforms={"norm.weight": lambda w, _: w - 1},
    ),
    "gemma2": GEMMA2,
    "gemma2-largest": changed(GEMMA2, GEMMA2_LARGEST),
    "stablelm": changed(STABLELM, {"use_qkv_bias": True}),
    "stablelm-parallel": replace(
        changed(STABLELM, {"use_parallel_residual": True, "qk_layernorm": True}),
        names={
            f"self_attn.{which}_layernorm.norms.{head}": f"attn_{which}_norm"
            for which in "qk"
            for head in range(6)
        },
    ),
    "falcon": replace(
        FALCON,
        names={**FALCON.names, "input_layernorm": "attn_norm"},
        transforms={"attn_qkv.weight": lambda w, c: grouped_heads(w, c.num_attention_heads, 1)},
    ),
    "falcon-large": replace(
        changed(FALCON, LARGE_FALCON),
        metadata=lambda c: {"attention.head_count_kv": c.num_kv_heads},
        names={**FALCON.names, "ln_attn": "attn_norm_2", "ln_mlp": "attn_norm"},
        transforms={
            "attn_qkv.weight": lambda w, c: grouped_heads(w, c.num_attention_heads, c.num_kv_heads)
        },
    ),
    "gpt2": Recipe(
        architecture="gpt2",
        model="GPT2LMHeadModel",
        config={"n_embd": 60, "n_inner": 90, "n_layer": 3, "n_head": 5},
        names={
            "transformer.h.": "blk.",
            "transformer.wte": "token_embd",
            "transformer.wpe": "position_embd",
            "transformer.ln_f": "output_norm",
            "ln_1": "attn_norm",
            "ln_2": "ffn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            **TWO_LINEARS,
        },
        transposed=(
            "attn_qkv.weight",
            "attn_output.weight",
            "ffn_up.weight",
            "ffn_down.weight",
        ),
    ),
    "gptneox": GPTNEOX,
    "gptneox-sequential": changed(GPTNEOX, {"use_parallel_residual": False}),
    "starcoder2": Recipe(
        architecture="starcoder2",
        model="Starcoder2ForCausalLM",
        config={**SIZES, "sliding_window": None, "rope_parameters": rope(100000.0)},
        names=TWO_LINEARS,
    ),
    "olmo2": OLMO2,
    "olmo2-window": replace(
        changed(
            OLMO2,
            {"num_hidden_layers": 5, "sliding_window": 13, "rope_parameters": OLMO3_ROPE},
        ),
        model="Olmo3ForCausalLM",
    ),
    "granite": Recipe(
        architecture="granite",
        model="GraniteForCausalLM",
        config={
            **SIZES,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.4,
            "logits_scaling": 1.6,
            "rope_parameters": rope(),
        },
        metadata=lambda c: {
            "embedding_scale": c.embedding_multiplier,
            "attention.scale": c.attention_multiplier,
            "residual_scale": c.residual_multiplier,
            "logit_scale": c.logits_scaling,
        },
        transforms=TURNED_PAIRS,
    ),
    "command-r": COMMAND_R,
    "command-r-plus": replace(changed(COMMAND_R, COMMAND_R_PLUS), names=HEAD_NORMS),
    # transformers has no class for the next two; what they compute, it calls Llama.
    "internlm2": Recipe(
        architecture="internlm2",
        model="LlamaForCausalLM",
        config={**SIZES, "rope_parameters": rope(1e6)},
        transforms=TURNED_PAIRS,
    ),
    "exaone": Recipe(
        architecture="exaone",
        model="LlamaForCausalLM",
        config={**SIZES, "head_dim": 16, "rope_parameters": LLAMA3},
        constants=llama3_factors,
    ),
    "smollm3": Recipe(
        architecture="smollm3",
        model="SmolLM3ForCausalLM",
        config={**SIZES, "num_hidden_layers": 5, "rope_parameters": rope(2e6)},
        transforms=TURNED_PAIRS,
    ),
    "glm4": Recipe(
        architecture="glm4",
        model="Glm4ForCausalLM",
        config={
            **SIZES,
            "head_dim": 16,
            "attention_bias": True,
            "rope_parameters": rope(partial_rotary_factor=0.5),
        },
        names={
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "mlp.gate_up_proj": "ffn_up",
        },
    ),
    "nemotron": Recipe(
        architecture="nemotron",
        model="NemotronForCausalLM",
        config={**SIZES, "hidden_size": 72, "rope_parameters": rope(partial_rotary_factor=0.5)},
        transforms={"norm.weight": lambda w, _: w - 1},
    ),
}
