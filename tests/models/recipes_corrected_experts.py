"""Recipes of models whose experts are chosen by scores with a bias, many with shared experts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from models.recipe import Recipe, changed
from models.recipes_experts import EXPERT_NAMES, GATE_UP, HEAD_NORMS

SIGMOID = 2  # llama.cpp's number of this gating
SIZES: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 90,
    "moe_intermediate_size": 36,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 3,
}
DENSE_FIRST: Mapping[str, Any] = {
    **SIZES,
    "head_dim": 20,
    "n_routed_experts": 9,
    "n_shared_experts": 2,
    "first_k_dense_replace": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.7,
}
CORRECTED_NAMES = {
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    **EXPERT_NAMES,
}


def rope(theta: float, **more: Any) -> dict[str, Any]:
    """Plain rotary positions."""
    return {"rope_type": "default", "rope_theta": theta, **more}


def dense_first_keys(config: Any) -> dict[str, int | float | str]:
    """Keys that converters write for models of this kind."""
    return {
        "expert_shared_count": config.n_shared_experts,
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_gating_func": SIGMOID,
        "expert_weights_norm": config.norm_topk_prob,
        "expert_weights_scale": config.routed_scaling_factor,
    }


GLM4MOE = Recipe(
    architecture="glm4moe",
    model="Glm4MoeForCausalLM",
    config={
        **DENSE_FIRST,
        "use_qk_norm": True,
        "attention_bias": True,
        "num_mtp_layers": 0,
        "rope_parameters": rope(1e6, partial_rotary_factor=0.5),
    },
    metadata=dense_first_keys,
    names={
        "post_attention_layernorm": "post_attention_norm",
        **HEAD_NORMS,
        **CORRECTED_NAMES,
    },
    joined={"mlp.experts.gate_up_proj": GATE_UP},
)
ERNIE = Recipe(
    architecture="ernie4_5-moe",
    model="Ernie4_5_MoeForCausalLM",
    config={
        **SIZES,
        "hidden_size": 96,
        "moe_k": 3,
        "moe_num_experts": 9,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
        "rope_parameters": rope(500000.0),
    },
    metadata=lambda c: {
        "expert_shared_count": c.moe_num_shared_experts,
        "expert_shared_feed_forward_length": c.moe_num_shared_experts * c.moe_intermediate_size,
        "leading_dense_block_count": c.moe_layer_start_index,
        "interleave_moe_layer_step": c.moe_layer_interval,
    },
    names={
        "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
        **CORRECTED_NAMES,
    },
    joined={"mlp.experts.gate_up_proj": GATE_UP},
)


def with_early_routers(model: Any) -> None:
    """Routers that score what comes into a layer; no norms of heads, no shared experts."""
    for layer in model.model.layers:
        kept: list[Any] = []
        layer.register_forward_pre_hook(
            lambda _, args, settings, kept=kept: kept.append((*args, *settings.values())[0]),
            with_kwargs=True,
        )
        gate = layer.mlp.gate
        gate.forward = lambda _, own=gate.forward, kept=kept: own(kept.pop())
        layer.mlp.shared_experts.forward = lambda x: 0 * x
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.forward = lambda x: x


WINDOWS = ["full_attention", *["sliding_attention"] * 3, "full_attention", "sliding_attention"]
# transformers has no class for it; what it computes is K-EXAONE without some parts, and with
# routers before attention.
SMALLTHINKER = Recipe(
    architecture="smallthinker",
    model="ExaoneMoeForCausalLM",
    config={
        **SIZES,
        "num_hidden_layers": 6,
        "head_dim": 20,
        "hidden_act": "relu",
        "num_experts": 9,
        "num_shared_experts": 1,
        "first_k_dense_replace": 0,
        "routed_scaling_factor": 1.0,
        "sliding_window": 4096,  # of all layers, which have RoPE then: more than a context
        "layer_types": ["sliding_attention"] * 6,
        "rope_parameters": rope(1.5e6),
    },
    metadata=lambda c: {
        "feed_forward_length": c.moe_intermediate_size,
        "expert_gating_func": SIGMOID,
        "attention.sliding_window": c.sliding_window if c.layer_types == WINDOWS else None,
    },
    names=EXPERT_NAMES,
    joined={"mlp.experts.gate_up_proj": GATE_UP},
    left_out=("self_attn.q_norm", "self_attn.k_norm", "shared_experts", "e_score_correction_bias"),
    adjust=with_early_routers,
)

CORRECTED_EXPERTS: dict[str, Recipe] = {
    "smallthinker": SMALLTHINKER,
    # llama.cpp has windows of 4096 tokens, whatever a file says.
    "smallthinker-window": changed(SMALLTHINKER, {"sliding_window": 11, "layer_types": WINDOWS}),
    "smallthinker-wide": changed(SMALLTHINKER, {"layer_types": WINDOWS}),
    # transformers has no class for it; what it computes is GLM 4.5 with groups.
    "bailingmoe2": replace(
        changed(
            GLM4MOE,
            {
                "hidden_size": 96,
                "head_dim": 16,
                "attention_bias": False,
                "n_routed_experts": 12,
                "n_group": 4,
                "topk_group": 2,
            },
        ),
        architecture="bailingmoe2",
        metadata=lambda c: {
            **dense_first_keys(c),
            "expert_shared_feed_forward_length": c.moe_intermediate_size,
            "expert_group_count": c.n_group,
            "expert_group_used_count": c.topk_group,
        },
        names={
            **HEAD_NORMS,
            **CORRECTED_NAMES,
            **{f"attn_{which}.weight": "attn_qkv.weight" for which in "qkv"},
        },
    ),
    "glm4moe": GLM4MOE,
    "glm4moe-plain": changed(
        GLM4MOE, {"use_qk_norm": False, "attention_bias": False, "first_k_dense_replace": 1}
    ),
    "dots1": Recipe(
        architecture="dots1",
        model="Dots1ForCausalLM",
        config={
            **DENSE_FIRST,
            "num_key_value_heads": 6,  # llama.cpp takes no other number
            "sliding_window": None,
            "rope_parameters": rope(1e4),
        },
        metadata=dense_first_keys,
        names={**HEAD_NORMS, **CORRECTED_NAMES},
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "ernie4_5-moe": ERNIE,
    "ernie4_5-moe-alternating": changed(
        ERNIE, {"moe_layer_start_index": 0, "moe_layer_interval": 2}
    ),
    "afmoe": Recipe(
        architecture="afmoe",
        model="AfmoeForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 5,
            "head_dim": 20,
            "num_experts": 9,
            "num_shared_experts": 2,
            "num_dense_layers": 2,
            "route_scale": 1.7,
            "sliding_window": 11,
            "mup_enabled": True,
            "rope_parameters": rope(1e4),
        },
        metadata=lambda c: {
            "expert_shared_count": c.num_shared_experts,
            "leading_dense_block_count": c.num_dense_layers,
            "expert_gating_func": SIGMOID,
            "expert_weights_norm": True,
            "expert_weights_scale": c.route_scale,
        },
        names={
            "post_attention_layernorm": "post_attention_norm",
            "pre_mlp_layernorm": "ffn_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "self_attn.gate_proj": "attn_gate",
            "mlp.router.gate": "ffn_gate_inp",
            "mlp.expert_bias": "exp_probs_b.bias",
            **HEAD_NORMS,
            **CORRECTED_NAMES,
        },
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "exaone-moe": Recipe(
        architecture="exaone-moe",
        model="ExaoneMoeForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 6,
            "head_dim": 20,
            "num_experts": 9,
            "num_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.7,
            "sliding_window": 11,
            "rope_parameters": rope(1e6),
        },
        metadata=lambda c: {
            "attention.sliding_window_pattern": [
                kind == "sliding_attention" for kind in c.layer_types
            ],
            "expert_shared_count": c.num_shared_experts,
            "expert_shared_feed_forward_length": c.num_shared_experts * c.moe_intermediate_size,
            "leading_dense_block_count": c.first_k_dense_replace,
            "expert_gating_func": SIGMOID,
            "expert_weights_norm": c.norm_topk_prob,
            "expert_weights_scale": c.routed_scaling_factor,
        },
        names={**HEAD_NORMS, **CORRECTED_NAMES},
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "hunyuan-moe": Recipe(
        architecture="hunyuan-moe",
        model="HunYuanMoEV1ForCausalLM",
        config={
            **SIZES,
            "intermediate_size": 36,
            "head_dim": 20,
            "num_experts": 9,
            "moe_topk": 3,
            "rope_parameters": rope(1e4),
        },
        metadata=lambda c: {
            "expert_used_count": c.moe_topk,
            "expert_feed_forward_length": c.intermediate_size,
            "expert_shared_feed_forward_length": c.intermediate_size,
        },
        names={
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
            "mlp.gate.wg": "ffn_gate_inp",
            "mlp.experts.down_proj": "ffn_down_exps.weight",
            # What the usual names have made of shared_mlp.gate_proj and so on.
            "mlp.shared_ffn_gate": "ffn_gate_shexp",
            "mlp.shared_ffn_up": "ffn_up_shexp",
            "mlp.shared_ffn_down": "ffn_down_shexp",
        },
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "minimax-m2": Recipe(
        architecture="minimax-m2",
        model="MiniMaxM2ForCausalLM",
        config={
            **SIZES,
            "head_dim": 20,
            "num_local_experts": 9,
            "intermediate_size": 36,
            "rope_parameters": rope(5e6, partial_rotary_factor=0.5),
        },
        metadata=lambda _: {"expert_gating_func": SIGMOID},
        names={
            **HEAD_NORMS,
            "mlp.e_score_correction_bias": "exp_probs_b.bias",
            **EXPERT_NAMES,
        },
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
}
