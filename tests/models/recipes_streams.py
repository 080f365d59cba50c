"""Recipes of models whose layers have inputs of their own, share keys and values, or work on one of
several streams (see recipes.py)."""

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from models.recipe import Floats, Recipe, changed
from models.recipes_experts import HEAD_NORMS

WINDOW, FULL = "sliding_attention", "full_attention"
NAMES = {
    "token_embd_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    **HEAD_NORMS,
}
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 20,
    "sliding_window": 9,
    "hidden_size_per_layer_input": 12,
    "vocab_size_per_layer_input": 61,
    # The last four read the keys and values of the two before them.
    "num_hidden_layers": 8,
    "layer_types": [WINDOW, WINDOW, WINDOW, FULL, WINDOW, FULL, WINDOW, FULL],
    "num_kv_shared_layers": 4,
}


def keys(config: Any) -> dict[str, Any]:
    """What all of them have in their metadata."""
    return {
        "attention.sliding_window_pattern": [kind == WINDOW for kind in config.layer_types],
        "attention.shared_kv_layers": config.num_kv_shared_layers,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
        "rope.freq_base_swa": config.rope_parameters[WINDOW]["rope_theta"],
        "final_logit_softcapping": config.final_logit_softcapping,
    }


def sparse_keys(config: Any) -> dict[str, Any]:
    """Those of streams; a share of gates that is cut off, as deviations from their mean."""
    shares = config.activation_sparsity_pattern
    return {
        **keys(config),
        "feed_forward_length": list(config.intermediate_size),
        "altup.num_inputs": config.altup_num_inputs,
        "altup.active_idx": config.altup_active_idx,
        "activation_sparsity_scale": [
            NormalDist().inv_cdf(share) if share else -np.inf for share in shares
        ],
    }


def head_keys(config: Any) -> dict[str, Any]:
    """Those of layers with heads of two sizes."""
    own = [config.per_layer_config[layer] for layer in range(config.num_hidden_layers)]
    wide = config.num_hidden_layers - config.num_kv_shared_layers
    sizes = {kind: own[config.layer_types.index(kind)].head_dim for kind in (WINDOW, FULL)}
    twice = config.use_double_wide_mlp
    return {
        **keys(config),
        "feed_forward_length": [
            config.intermediate_size * (2 if twice and layer >= wide else 1)
            for layer in range(config.num_hidden_layers)
        ],
        "attention.head_count_kv": [layer.num_key_value_heads for layer in own],
        "attention.key_length": sizes[FULL],
        "attention.value_length": sizes[FULL],
        "attention.key_length_swa": sizes[WINDOW],
        "attention.value_length_swa": sizes[WINDOW],
        "rope.dimension_count": sizes[FULL],
        "rope.dimension_count_swa": sizes[WINDOW],
        "expert_used_count": config.top_k_experts,
    }


def turning_part(config: Any) -> dict[str, Floats]:
    """Pairs of a head that do not turn are divided by a number so large that they stand still."""
    pairs = config.per_layer_config[config.layer_types.index(FULL)].head_dim // 2
    turning = int(pairs * config.rope_parameters[FULL]["partial_rotary_factor"])
    factors = [1.0] * turning + [1e30] * (pairs - turning)
    return {"rope_freqs.weight": np.array(factors, np.float32)}


GEMMA4 = Recipe(
    architecture="gemma4",
    model="Gemma4ForCausalLM",
    config={
        **SIZES,
        "global_head_dim": 24,
        "use_double_wide_mlp": True,
        "final_logit_softcapping": 3.0,
        "rope_parameters": {
            WINDOW: {"rope_type": "default", "rope_theta": 10000.0},
            FULL: {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1000000.0,
            },
        },
    },
    metadata=head_keys,
    names={**NAMES, "layer_scalar": "layer_output_scale.weight"},
    constants=turning_part,
    adjust=lambda model: setattr(
        model.config, "allow_global_per_layer_attribute_access", True
    ),  # for the keys that all recipes have
)
STREAMS: dict[str, Recipe] = {
    "gemma3n": Recipe(
        architecture="gemma3n",
        model="Gemma3nForCausalLM",
        config={
            **SIZES,
            "altup_active_idx": 1,
            "activation_sparsity_pattern": [0.9] * 3 + [0.0] * 5,
            "rope_parameters": {
                WINDOW: {"rope_type": "default", "rope_theta": 10000.0},
                FULL: {"rope_type": "default", "rope_theta": 1000000.0},
            },
        },
        metadata=sparse_keys,
        names={
            **NAMES,
            "altup.correct_output_scale": "altup_correct_scale.weight",
            "altup.correction_coefs": "altup_correct_coef",
            "altup.prediction_coefs": "altup_predict_coef",
            "altup.modality_router": "altup_router",
            "altup.router_norm": "altup_router_norm",
            "laurel.linear_left": "laurel_l",
            "laurel.linear_right": "laurel_r",
            "laurel.post_laurel_norm": "laurel_post_norm",
            **{
                f"altup_{kind}s.{number}": name
                for number in range(3)
                for kind, name in (
                    ("projection", "altup_proj"),
                    ("unembed_projection", "altup_unembd_proj"),
                )
            },
        },
        stacked=("altup_proj.weight", "altup_unembd_proj.weight"),
    ),
    "gemma4": GEMMA4,
    # The larger ones: one tensor for keys and values, no inputs of layers, nothing shared.
    "gemma4-large": replace(
        changed(
            GEMMA4,
            {
                "attention_k_eq_v": True,
                "num_global_key_value_heads": 1,
                "hidden_size_per_layer_input": 0,
                "num_kv_shared_layers": 0,
                "num_hidden_layers": 4,
                "layer_types": [WINDOW, FULL, WINDOW, FULL],
            },
        ),
        metadata=lambda c: {**head_keys(c), "embedding_length_per_layer_input": 0},
    ),
    "gemma4-experts": replace(
        changed(
            GEMMA4,
            {
                "hidden_size_per_layer_input": 0,
                "num_kv_shared_layers": 0,
                "use_double_wide_mlp": False,
                "enable_moe_block": True,
                "num_experts": 5,
                "top_k_experts": 2,
                "moe_intermediate_size": 36,
            },
        ),
        names={
            **GEMMA4.names,
            "router.proj": "ffn_gate_inp",
            "router.scale": "ffn_gate_inp.scale",
            "router.per_expert_scale": "ffn_down_exps.scale",
            "experts.gate_up_proj": "ffn_gate_up_exps.weight",
            "experts.down_proj": "ffn_down_exps.weight",
        },
    ),
}
