"""Recipes of models with experts."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from models.recipe import (
    TURNED_PAIRS,
    Floats,
    Joined,
    Recipe,
    changed,
    long_rope_factors,
    long_rope_keys,
)

GATE_UP = Joined(
    ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
    lambda experts, rows, columns: (experts, rows // 2, columns),
    lambda gate, up: np.concatenate([gate, up], axis=1),
)
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
EXPERT_NAMES = {"mlp.gate.": "ffn_gate_inp.", "mlp.experts.down_proj": "ffn_down_exps.weight"}


def alternating(gate: Floats, up: Floats) -> Floats:
    """The elements of both in turn, along the last axis."""
    return np.stack([gate, up], axis=-1).reshape(*gate.shape[:-1], -1)


# gpt-oss multiplies from the other side and mixes gate and up element by element.
GPT_OSS_EXPERTS = {
    "mlp.experts.gate_up_proj": Joined(
        ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
        lambda experts, columns, rows: (experts, rows // 2, columns),
        lambda gate, up: alternating(gate.swapaxes(1, 2), up.swapaxes(1, 2)),
    ),
    "mlp.experts.gate_up_proj_bias": Joined(
        ("ffn_gate_exps.bias", "ffn_up_exps.bias"),
        lambda experts, rows: (experts, rows // 2),
        alternating,
    ),
    "mlp.experts.down_proj": Joined(
        ("ffn_down_exps.weight",),
        lambda experts, columns, rows: (experts, rows, columns),
        lambda down: down.swapaxes(1, 2),
    ),
}

SIZES = {
    "hidden_size": 96,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
GRANITE = Recipe(
    architecture="granitemoe",
    model="GraniteMoeForCausalLM",
    config={
        **SIZES,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "logits_scaling": 1.6,
    },
    metadata=lambda c: {
        "embedding_scale": c.embedding_multiplier,
        "attention.scale": c.attention_multiplier,
        "residual_scale": c.residual_multiplier,
        "logit_scale": c.logits_scaling,
    },
    names={
        "block_sparse_moe.router": "ffn_gate_inp",
        "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
    },
    transforms=TURNED_PAIRS,
    joined={"block_sparse_moe.experts.gate_up_proj": GATE_UP},
)
SHARED_GATE_UP = Joined(
    ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"),
    lambda rows, columns: (rows // 2, columns),
    lambda gate, up: np.concatenate([gate, up]),
)
GPT_OSS = Recipe(
    architecture="gpt-oss",
    model="GptOssForCausalLM",
    config={
        **SIZES,
        "num_hidden_layers": 4,
        "head_dim": 20,
        "num_local_experts": 6,
        "num_experts_per_tok": 3,
        "sliding_window": 9,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 150000.0,
            "truncate": False,
        },
    },
    metadata=lambda c: {"expert_feed_forward_length": c.intermediate_size},
    names={
        "post_attention_layernorm": "post_attention_norm",
        "mlp.router": "ffn_gate_inp",
        "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
        "self_attn.sinks": "attn_sinks.weight",
    },
    joined=GPT_OSS_EXPERTS,
)

PHIMOE = Recipe(
    architecture="phimoe",
    model="PhimoeForCausalLM",
    config={
        **SIZES,
        "num_local_experts": 7,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "lm_head_bias": True,
    },
    names={
        "mlp.router": "ffn_gate_inp",
        "mlp.experts.down_proj": "ffn_down_exps.weight",
    },
    joined={"mlp.experts.gate_up_proj": GATE_UP},
)
# A context that its tokens fit: in a longer one, transformers takes the same factors for this
# family. What multiplies cosines and sines is in its configuration; files say what follows from
# the two contexts.
SHORT_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 128,
    "short_factor": [1 + 0.1 * pair for pair in range(8)],
    "long_factor": [1.5 + 0.7 * pair for pair in range(8)],
    "short_mscale": (1 + math.log(2) / math.log(128)) ** 0.5,
    "long_mscale": 1.0,
}


def with_open_gates(model: Any) -> None:
    """Shared experts as they are: the sigmoid of their gate is one."""
    for layer in model.model.layers:
        if hasattr(layer.mlp, "shared_expert_gate"):
            layer.mlp.shared_expert_gate.forward = lambda x: x.new_full((len(x), 1), 100.0)


EXPERTS: dict[str, Recipe] = {
    "mixtral": Recipe(
        architecture="llama",
        model="MixtralForCausalLM",
        config={**SIZES, "num_local_experts": 5, "num_experts_per_tok": 2},
        names=EXPERT_NAMES,
        transforms=TURNED_PAIRS,
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "qwen2moe": Recipe(
        architecture="qwen2moe",
        model="Qwen2MoeForCausalLM",
        config={
            **SIZES,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "moe_intermediate_size": 36,
            "shared_expert_intermediate_size": 52,
            "num_experts": 7,
            "num_experts_per_tok": 3,
        },
        metadata=lambda c: {"expert_shared_feed_forward_length": c.shared_expert_intermediate_size},
        names={
            **EXPERT_NAMES,
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
            "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp",
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        },
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    # transformers has no class for it; what it computes is Qwen 2 MoE without two of its parts.
    "deepseek": Recipe(
        architecture="deepseek",
        model="Qwen2MoeForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 4,
            "num_key_value_heads": 6,
            "moe_intermediate_size": 36,
            "shared_expert_intermediate_size": 72,
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "mlp_only_layers": [0],
            "qkv_bias": False,
        },
        metadata=lambda c: {
            "expert_shared_count": 2,
            "leading_dense_block_count": len(c.mlp_only_layers),
            "expert_weights_scale": 1.0,
        },
        names={
            **EXPERT_NAMES,
            "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
            "mlp.shared_expert.up_proj": "ffn_up_shexp",
            "mlp.shared_expert.down_proj": "ffn_down_shexp",
        },
        transforms=TURNED_PAIRS,
        joined={"mlp.experts.gate_up_proj": GATE_UP},
        left_out=("shared_expert_gate",),
        adjust=with_open_gates,
    ),
    "qwen3moe": Recipe(
        architecture="qwen3moe",
        model="Qwen3MoeForCausalLM",
        config={
            **SIZES,
            "hidden_size": 64,
            "moe_intermediate_size": 32,
            "head_dim": 20,
            "num_experts": 9,
            "num_experts_per_tok": 4,
            "norm_topk_prob": True,
        },
        names={**EXPERT_NAMES, **HEAD_NORMS},
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "llama4": Recipe(
        architecture="llama4",
        model="Llama4ForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 5,
            "head_dim": 20,
            "intermediate_size": 36,
            "intermediate_size_mlp": 64,
            "num_local_experts": 7,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
        },
        metadata=lambda c: {
            "feed_forward_length": c.intermediate_size_mlp,
            "expert_feed_forward_length": c.intermediate_size,
            "interleave_moe_layer_step": c.interleave_moe_layer_step,
        },
        names={
            "feed_forward.router": "ffn_gate_inp",
            "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
            "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
            "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
        },
        joined={
            "feed_forward.experts.gate_up_proj": Joined(
                ("ffn_gate_exps.weight", "ffn_up_exps.weight"),
                lambda experts, columns, rows: (experts, rows // 2, columns),
                lambda gate, up: np.concatenate([gate, up], axis=1).swapaxes(1, 2),
            ),
            "feed_forward.experts.down_proj": Joined(
                ("ffn_down_exps.weight",),
                lambda experts, columns, rows: (experts, rows, columns),
                lambda down: down.swapaxes(1, 2),
            ),
        },
    ),
    "olmoe": Recipe(
        architecture="olmoe",
        model="OlmoeForCausalLM",
        config={
            **SIZES,
            "num_key_value_heads": 6,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "eos_token_id": None,
        },
        names={**EXPERT_NAMES, **HEAD_NORMS},
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
    "granitemoe": GRANITE,
    "granitemoe-shared": replace(
        changed(GRANITE, {"shared_intermediate_size": 44}),
        model="GraniteMoeSharedForCausalLM",
        metadata=lambda c: {
            **GRANITE.metadata(c),
            "expert_shared_feed_forward_length": c.shared_intermediate_size,
        },
        names={**GRANITE.names, "shared_mlp.output_linear": "ffn_down_shexp"},
        joined={**GRANITE.joined, "shared_mlp.input_linear.weight": SHARED_GATE_UP},
    ),
    "phimoe": PHIMOE,
    "phimoe-short": replace(
        changed(PHIMOE, {"rope_parameters": SHORT_ROPE}),
        metadata=long_rope_keys,
        constants=long_rope_factors,
    ),
    "gpt-oss": GPT_OSS,
    "gpt-oss-unstretched": changed(GPT_OSS, {"rope_parameters": SIZES["rope_parameters"]}),
}
