"""Recipes of models with attention in some layers and states in others (see recipes.py)."""

from dataclasses import replace
from typing import Any

import numpy as np

from models.recipe import TURNED_PAIRS, Joined, Recipe, Transform, changed
from models.recipes_corrected_experts import SIGMOID
from models.recipes_experts import GATE_UP, SHARED_GATE_UP
from models.recipes_recurrent import CONVOLUTION, group_norm

LAYERS = ["conv", "full_attention", "conv", "full_attention", "conv"]
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 90,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LFM2_NAMES = {
    "embedding_norm": "token_embd_norm",
    "operator_norm": "attn_norm",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
}
SHORT_CONVOLUTION = Joined(
    ("shortconv.conv.weight",), lambda channels, _, taps: (channels, taps), lambda w: w[:, None]
)


def kv_heads(config: Any, types: list[str], attention: str) -> list[int]:
    """Those of every layer; 0 if it has no attention."""
    return [config.num_key_value_heads if kind == attention else 0 for kind in types]


def lfm2_keys(config: Any) -> dict[str, Any]:
    """What both kinds have in their metadata."""
    return {
        "attention.head_count_kv": kv_heads(config, config.layer_types, "full_attention"),
        "attention.layer_norm_epsilon": None,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "shortconv.l_cache": config.conv_L_cache,
    }


def mamba2(name: str, groups: int) -> dict[str, Joined]:
    """Parameters of Mamba 2 as files hold them."""
    return {
        f"{name}.conv1d.weight": CONVOLUTION,
        f"{name}.A_log": Joined(
            ("ssm_a",), lambda heads: (heads, 1), lambda a: np.log(-a.astype(np.float64))[:, 0]
        ),
        f"{name}.D": Joined(("ssm_d",), lambda heads: (heads, 1), lambda d: d[:, 0]),
        f"{name}.norm.weight": group_norm(groups),
    }


def mamba2_names(name: str) -> dict[str, str]:
    """Names of the rest."""
    return {
        f"{name}.dt_bias": "ssm_dt.bias",
        f"{name}.in_proj": "ssm_in",
        f"{name}.conv1d": "ssm_conv1d",
        f"{name}.out_proj": "ssm_out",
    }


LFM2 = Recipe(
    architecture="lfm2",
    model="Lfm2ForCausalLM",
    config={
        **SIZES,
        "layer_types": LAYERS,
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": 3,
        "rope_parameters": ROPE,
    },
    metadata=lfm2_keys,
    names=LFM2_NAMES,
    joined={"conv.conv.weight": SHORT_CONVOLUTION},
)
DENSE_GATE_UP = Joined(
    ("ffn_gate.weight", "ffn_up.weight"), SHARED_GATE_UP.shape, SHARED_GATE_UP.join
)


def multiplier_keys(config: Any) -> dict[str, Any]:
    """Granite's multipliers."""
    return {
        "embedding_scale": config.embedding_multiplier,
        "attention.scale": config.attention_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": config.logits_scaling,
    }


GRANITE_LAYERS = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
GRANITE = Recipe(
    architecture="granitehybrid",
    model="GraniteMoeHybridForCausalLM",
    config={
        **SIZES,
        "num_hidden_layers": 4,
        "layer_types": GRANITE_LAYERS,
        "intermediate_size": 32,
        "shared_intermediate_size": 44,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 7,
        "mamba_chunk_size": 16,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "logits_scaling": 1.6,
        "position_embedding_type": "nope",
    },
    metadata=lambda c: {
        "attention.head_count_kv": kv_heads(c, c.layers_block_type, "full_attention"),
        "rope.scaling.finetuned": c.position_embedding_type == "rope",
        **multiplier_keys(c),
        "expert_shared_feed_forward_length": c.shared_intermediate_size,
        "ssm.conv_kernel": c.mamba_d_conv,
        "ssm.inner_size": c.mamba_expand * c.hidden_size,
        "ssm.state_size": c.mamba_d_state,
        "ssm.time_step_rank": c.mamba_n_heads,
        "ssm.group_count": c.mamba_n_groups,
    },
    names={
        **mamba2_names("mamba"),
        "block_sparse_moe.router": "ffn_gate_inp",
        "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
        "shared_mlp.output_linear": "ffn_down_shexp",
    },
    transforms=TURNED_PAIRS,
    joined={
        **mamba2("mamba", 1),
        "block_sparse_moe.experts.gate_up_proj": GATE_UP,
        "shared_mlp.input_linear.weight": SHARED_GATE_UP,
    },
)
NEMOTRON_LAYERS = ["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"]
NEMOTRON = Recipe(
    architecture="nemotron_h",
    model="NemotronHForCausalLM",
    config={
        **SIZES,
        "layers_block_type": NEMOTRON_LAYERS,
        "head_dim": 20,
        "ssm_state_size": 9,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "chunk_size": 16,
        "use_mamba_kernels": False,
    },
    metadata=lambda c: {
        "attention.head_count_kv": kv_heads(c, c.layers_block_type, "full_attention"),
        "attention.layer_norm_rms_epsilon": c.layer_norm_epsilon,
        "feed_forward_length": [
            c.intermediate_size if kind == "mlp" else 0 for kind in c.layers_block_type
        ],
        "expert_count": None,
        "expert_used_count": None,
        "expert_feed_forward_length": None,
        "ssm.conv_kernel": c.conv_kernel,
        "ssm.inner_size": c.mamba_num_heads * c.mamba_head_dim,
        "ssm.state_size": c.ssm_state_size,
        "ssm.time_step_rank": c.mamba_num_heads,
        "ssm.group_count": c.n_groups,
    },
    names={
        "backbone.": "",
        "model.": "",
        "embeddings": "token_embd",
        "norm_f": "output_norm",
        ".norm.weight": ".attn_norm.weight",
        **mamba2_names("mixer"),
        "mixer.q_proj": "attn_q",
        "mixer.k_proj": "attn_k",
        "mixer.v_proj": "attn_v",
        "mixer.o_proj": "attn_output",
        "mixer.up_proj": "ffn_up",
        "mixer.down_proj": "ffn_down",
    },
    joined=mamba2("mixer", 2),
)
JAMBA = Recipe(
    architecture="jamba",
    model="JambaForCausalLM",
    config={
        **SIZES,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "mamba_d_state": 5,
        "mamba_dt_rank": 7,
        "use_mamba_kernels": False,
        "use_associative_scan": False,
    },
    metadata=lambda c: {
        "attention.head_count_kv": kv_heads(c, c.layer_types, "full_attention"),
        "ssm.conv_kernel": c.mamba_d_conv,
        "ssm.inner_size": c.mamba_expand * c.hidden_size,
        "ssm.state_size": c.mamba_d_state,
        "ssm.time_step_rank": c.mamba_dt_rank,
    },
    names={
        "final_layernorm": "output_norm",
        "pre_ff_layernorm": "ffn_norm",
        "feed_forward.router": "ffn_gate_inp",
        "feed_forward.experts.down_proj": "ffn_down_exps.weight",
        "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down",
        "mamba.in_proj": "ssm_in",
        "mamba.conv1d": "ssm_conv1d",
        "mamba.x_proj": "ssm_x",
        "mamba.dt_proj": "ssm_dt",
        "mamba.dt_layernorm": "ssm_dt_norm",
        "mamba.b_layernorm": "ssm_b_norm",
        "mamba.c_layernorm": "ssm_c_norm",
        "mamba.A_log": "ssm_a",
        "mamba.D": "ssm_d",
        "mamba.out_proj": "ssm_out",
    },
    transforms={"ssm_a": lambda a, _: np.log(-a.astype(np.float64))},
    joined={
        "mamba.conv1d.weight": CONVOLUTION,
        "feed_forward.experts.gate_up_proj": GATE_UP,
    },
)
FALCON = Recipe(
    architecture="falcon-h1",
    model="FalconH1ForCausalLM",
    config={
        **SIZES,
        "num_hidden_layers": 3,
        "head_dim": 20,
        "mamba_d_ssm": 96,
        "mamba_n_heads": 6,
        "mamba_d_head": 16,
        "mamba_n_groups": 2,
        "mamba_d_state": 9,
        "mamba_chunk_size": 16,
        "mamba_rms_norm": False,
        "rope_parameters": ROPE,
    },
    metadata=lambda c: {
        "ssm.conv_kernel": c.mamba_d_conv,
        "ssm.inner_size": c.mamba_d_ssm,
        "ssm.state_size": c.mamba_d_state,
        "ssm.time_step_rank": c.mamba_n_heads,
        "ssm.group_count": c.mamba_n_groups,
    },
    names={
        "final_layernorm": "output_norm",
        "pre_ff_layernorm.weight": "ffn_norm",
        "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down",
        **mamba2_names("mamba"),
    },
    joined=mamba2("mamba", 2),
)
# Multipliers, which files have in their weights.
MULTIPLIERS: dict[str, Any] = {
    "embedding_multiplier": 3.0,
    "lm_head_multiplier": 0.3,
    "attention_in_multiplier": 1.4,
    "key_multiplier": 0.6,
    "attention_out_multiplier": 0.8,
    "ssm_in_multiplier": 1.2,
    "ssm_multipliers": [0.5, 1.5, 0.7, 1.3, 0.9],
    "ssm_out_multiplier": 0.7,
    "mlp_multipliers": [1.1, 0.6],
}


def of_parts(config: Any) -> np.ndarray:
    """The factor of each row that goes into the state space."""
    states = config.mamba_n_groups * config.mamba_d_state
    sizes = [config.mamba_d_ssm] * 2 + [states] * 2 + [config.mamba_n_heads]
    return config.ssm_in_multiplier * np.repeat(config.ssm_multipliers, sizes)[:, None]


MULTIPLIED: dict[str, Transform] = {
    "attn_q.weight": lambda w, c: w / c.attention_in_multiplier,
    "attn_k.weight": lambda w, c: w / c.attention_in_multiplier / c.key_multiplier,
    "attn_v.weight": lambda w, c: w / c.attention_in_multiplier,
    "attn_output.weight": lambda w, c: w / c.attention_out_multiplier,
    "ssm_in.weight": lambda w, c: w / of_parts(c),
    "ssm_out.weight": lambda w, c: w / c.ssm_out_multiplier,
    "ffn_gate.weight": lambda w, c: w / c.mlp_multipliers[0],
    "ffn_down.weight": lambda w, c: w / c.mlp_multipliers[1],
    "token_embd.weight": lambda w, c: w / c.embedding_multiplier,
}
MOE_LAYERS = ["linear_attention", "moe", "full_attention", "moe"]

HYBRID: dict[str, Recipe] = {
    "lfm2": LFM2,
    "lfm2moe": replace(
        changed(
            LFM2,
            {
                "moe_intermediate_size": 36,
                "num_dense_layers": 2,
                "num_experts": 7,
                "num_experts_per_tok": 3,
            },
        ),
        architecture="lfm2moe",
        model="Lfm2MoeForCausalLM",
        metadata=lambda c: {
            **lfm2_keys(c),
            "leading_dense_block_count": c.num_dense_layers,
            "expert_gating_func": SIGMOID,
        },
        names={
            **LFM2_NAMES,
            "feed_forward.gate.": "ffn_gate_inp.",
            "feed_forward.expert_bias": "exp_probs_b.bias",
            "feed_forward.experts.down_proj": "ffn_down_exps.weight",
        },
        joined={**LFM2.joined, "feed_forward.experts.gate_up_proj": GATE_UP},
    ),
    "granitehybrid": GRANITE,
    "granitehybrid-dense": replace(
        changed(
            GRANITE,
            {
                "num_local_experts": 0,
                "shared_intermediate_size": 44,
                "position_embedding_type": "rope",
                "rope_parameters": ROPE,
            },
        ),
        metadata=lambda c: {
            **GRANITE.metadata(c),
            "feed_forward_length": c.shared_intermediate_size,
            "expert_shared_feed_forward_length": None,
            "expert_used_count": None,
        },
        names={**GRANITE.names, "shared_mlp.output_linear": "ffn_down"},
        joined={**mamba2("mamba", 1), "shared_mlp.input_linear.weight": DENSE_GATE_UP},
    ),
    # Models of the same class whose layers all have attention are of other architectures.
    "granite-hybrid": replace(
        changed(
            GRANITE,
            {
                "layer_types": ["full_attention"] * 4,
                "num_local_experts": 0,
                "position_embedding_type": "rope",
                "rope_parameters": ROPE,
            },
        ),
        architecture="granite",
        metadata=lambda c: {
            **multiplier_keys(c),
            "feed_forward_length": c.shared_intermediate_size,
            "expert_count": None,
            "expert_used_count": None,
        },
        names={**GRANITE.names, "shared_mlp.output_linear": "ffn_down"},
        joined={"shared_mlp.input_linear.weight": DENSE_GATE_UP},
    ),
    "nemotron_h": NEMOTRON,
    "nemotron_h_moe": replace(
        changed(
            NEMOTRON,
            {
                "layers_block_type": MOE_LAYERS,
                "n_routed_experts": 8,
                "n_shared_experts": 1,
                "moe_intermediate_size": 32,
                "moe_shared_expert_intermediate_size": 40,
                "num_experts_per_tok": 3,
                "routed_scaling_factor": 1.7,
                "n_group": 2,
                "topk_group": 1,
            },
        ),
        architecture="nemotron_h_moe",
        metadata=lambda c: {
            **NEMOTRON.metadata(c),
            "feed_forward_length": [
                c.moe_intermediate_size if kind == "moe" else 0 for kind in c.layers_block_type
            ],
            "expert_count": c.n_routed_experts,
            "expert_used_count": c.num_experts_per_tok,
            "expert_feed_forward_length": c.moe_intermediate_size,
            "expert_shared_feed_forward_length": c.moe_shared_expert_intermediate_size,
            "expert_shared_count": c.n_shared_experts,
            "expert_gating_func": SIGMOID,
            "expert_weights_norm": c.norm_topk_prob,
            "expert_weights_scale": c.routed_scaling_factor,
            "expert_group_count": c.n_group,
            "expert_group_used_count": c.topk_group,
        },
        names={
            **NEMOTRON.names,
            "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
            "mixer.gate.": "ffn_gate_inp.",
            "mixer.shared_experts.up_proj": "ffn_up_shexp",
            "mixer.shared_experts.down_proj": "ffn_down_shexp",
            "mixer.experts.up_proj": "ffn_up_exps.weight",
            "mixer.experts.down_proj": "ffn_down_exps.weight",
        },
    ),
    "jamba": JAMBA,
    "falcon-h1": FALCON,
    "falcon-h1-multiplied": replace(
        changed(FALCON, {**MULTIPLIERS, "mamba_n_groups": 1}),
        transforms=MULTIPLIED,
        joined={
            **mamba2("mamba", 1),
            "lm_head.weight": Joined(
                ("output.weight",),
                lambda *shape: shape,
                lambda w: w / MULTIPLIERS["lm_head_multiplier"],
            ),
        },
    ),
    "falcon-h1-norm": changed(FALCON, {"mamba_rms_norm": True, "mamba_norm_before_gate": False}),
}
