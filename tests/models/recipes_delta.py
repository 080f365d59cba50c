"""Recipes of models with the gated delta rule (see recipes.py)."""

from dataclasses import replace
from typing import Any

import numpy as np

from models.recipe import Floats, Joined, Recipe, Transform, changed
from models.recipes_experts import EXPERT_NAMES, GATE_UP, HEAD_NORMS
from models.recipes_recurrent import CONVOLUTION

KEY_HEADS, REPEAT, SIZE = 2, 3, 16  # heads of keys, of values for each of them, and their elements
KEYS, VALUES = KEY_HEADS * SIZE, KEY_HEADS * REPEAT * SIZE
NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_qkvz": "ssm_in",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    **HEAD_NORMS,
}
SHARED_NAMES = {
    **EXPERT_NAMES,
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
# Norms that are stored as what is added to 1 in the model; those of the delta rule are not.
NORMS: dict[str, Transform] = {
    f"{name}_norm.weight": lambda w, _: w - 1
    for name in ("attn", "post_attention", "attn_q", "attn_k", "output")
}
DECAYS = Joined(("ssm_a",), lambda heads: (heads,), lambda a: np.log(-a.astype(np.float64)))


def by_key_head(qkv: Floats, z: Floats) -> Floats:
    """For each key head its query and key, then the values and gates of its heads."""
    query, key, value = np.split(qkv, [KEYS, 2 * KEYS])
    parts = [part.reshape(KEY_HEADS, -1, qkv.shape[-1]) for part in (query, key, value, z)]
    return np.concatenate(parts, axis=1).reshape(-1, qkv.shape[-1])


MIXED_INPUTS = Joined(
    ("attn_qkv.weight", "attn_gate.weight"),
    lambda _, width: [(2 * KEYS + VALUES, width), (VALUES, width)],
    by_key_head,
)


def grouped(values: Floats, axis: int = 0) -> Floats:
    """Undo the converter's order of heads, in which the first heads of all key heads come first."""
    shape = values.shape
    apart = (
        *shape[:axis],
        REPEAT,
        KEY_HEADS,
        shape[axis] // (REPEAT * KEY_HEADS),
        *shape[axis + 1 :],
    )
    return np.ascontiguousarray(values.reshape(apart).swapaxes(axis, axis + 1)).reshape(shape)


def grouped_values(values: Floats) -> Floats:
    """The same of the last rows, which are values'."""
    return np.concatenate([values[: 2 * KEYS], grouped(values[2 * KEYS :])])


TILED: dict[str, Transform] = {
    "attn_qkv.weight": lambda w, _: grouped_values(w),
    "attn_gate.weight": lambda w, _: grouped(w),
    "ssm_alpha.weight": lambda w, _: grouped(w),
    "ssm_beta.weight": lambda w, _: grouped(w),
    "ssm_dt.bias": lambda w, _: grouped(w),
    "ssm_out.weight": lambda w, _: grouped(w, axis=1),
}
TILED_JOINED = {
    "linear_attn.conv1d.weight": replace(CONVOLUTION, join=lambda w: grouped_values(w)[:, None]),
    "linear_attn.A_log": replace(DECAYS, join=lambda a: np.log(-grouped(a).astype(np.float64))),
}


def keys(config: Any) -> dict[str, Any]:
    """What all of them have in their metadata."""
    return {
        "full_attention_interval": 4,
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
    }


def expert_keys(config: Any) -> dict[str, Any]:
    """And those with experts."""
    return {
        **keys(config),
        "expert_shared_feed_forward_length": config.shared_expert_intermediate_size,
    }


# Positions of images, which llama.cpp wants to know.
MROPE = {"rope.dimension_sections": [1, 1, 1, 0]}
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 90,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": SIZE,
    "linear_value_head_dim": SIZE,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": KEY_HEADS * REPEAT,
    "layer_types": ["linear_attention"] * 3 + ["full_attention", "linear_attention"],
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [1, 1, 1],
    },
}
EXPERTS = {
    "moe_intermediate_size": 36,
    "shared_expert_intermediate_size": 52,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
}
NEXT = Recipe(
    architecture="qwen3next",
    model="Qwen3NextForCausalLM",
    config={**SIZES, **EXPERTS},
    metadata=expert_keys,
    names={**NAMES, **SHARED_NAMES},
    transforms=NORMS,
    joined={
        "linear_attn.in_proj_qkvz.weight": MIXED_INPUTS,
        "linear_attn.conv1d.weight": CONVOLUTION,
        "linear_attn.A_log": DECAYS,
        "mlp.experts.gate_up_proj": GATE_UP,
    },
)
QWEN35 = Recipe(
    architecture="qwen35",
    model="Qwen3_5ForCausalLM",
    config=SIZES,
    metadata=lambda c: {**keys(c), **MROPE},
    names=NAMES,
    transforms={**NORMS, **TILED},
    joined=TILED_JOINED,
)

DELTA: dict[str, Recipe] = {
    "qwen3next": NEXT,
    "qwen3next-old": replace(
        NEXT,
        joined={name: joined for name, joined in NEXT.joined.items() if "in_proj_qkvz" not in name},
    ),
    "qwen35": QWEN35,
    "qwen35moe": replace(
        changed(QWEN35, EXPERTS),
        architecture="qwen35moe",
        model="Qwen3_5MoeForCausalLM",
        metadata=lambda c: {**expert_keys(c), **MROPE},
        names={**NAMES, **SHARED_NAMES},
        joined={**TILED_JOINED, "mlp.experts.gate_up_proj": GATE_UP},
    ),
}
