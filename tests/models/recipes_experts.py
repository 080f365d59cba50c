"""Recipes of models with experts."""

from dataclasses import replace

import numpy as np

from models.recipe import TURNED_PAIRS, Floats, Joined, Recipe, changed

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
    "phimoe": Recipe(
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
    ),
    "gpt-oss": GPT_OSS,
    "gpt-oss-unstretched": changed(GPT_OSS, {"rope_parameters": SIZES["rope_parameters"]}),
}
