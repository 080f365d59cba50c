"""One small recipe per architecture: a tiny configuration of its model in `transformers`.

A recipe says what is special; what most architectures share (names of tensors, keys of the
metadata) is in make_fixtures.py. Sizes are odd on purpose: no power of two where none is
needed, several query heads per key head, more tokens than a block of the cache.

To add an architecture, add a Recipe and run make_fixtures.py with its name.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Transform = Callable[[Floats, Any], Floats]  # values of the file, configuration -> of the model


def interleaved(values: Floats, heads: int) -> Floats:
    """Undo the converter's order of rows, in which elements that turn together are neighbours."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def llama3_factors(config: Any) -> dict[str, Floats]:
    """What the converter writes for Llama 3's long contexts: a divisor for each pair."""
    rope = config.rope_parameters
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    factors = []
    for pair in range(config.head_dim // 2):
        length = 2 * math.pi * rope["rope_theta"] ** (2 * pair / config.head_dim)
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(factor)
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return {"rope_freqs.weight": np.array(factors, np.float32)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to make one tiny model."""

    architecture: str
    model: str  # its class in transformers
    config: Mapping[str, Any]
    metadata: Callable[[Any], dict[str, int | float | str]] = lambda _: {}
    names: Mapping[str, str] = field(default_factory=dict)  # parts of names that differ
    transforms: Mapping[str, Transform] = field(default_factory=dict)  # by the file's names
    constants: Callable[[Any], dict[str, Floats]] = lambda _: {}
    tokens: int = 70


LLAMA = Recipe(
    architecture="llama",
    model="LlamaForCausalLM",
    config={
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    transforms={
        "attn_q.weight": lambda w, c: interleaved(w, c.num_attention_heads),
        "attn_k.weight": lambda w, c: interleaved(w, c.num_key_value_heads),
    },
)
GEMMA3 = Recipe(
    architecture="gemma3",
    model="Gemma3ForCausalLM",
    config={
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 7,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 20,
        "query_pre_attn_scalar": 20,
        "sliding_window": 9,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    metadata=lambda c: {"attention.sliding_window": c.sliding_window},
    names={
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    },
    transforms={"norm.weight": lambda w, _: w - 1},
)


# Layers as many as the largest Gemma 3 has, which scales its queries differently.
GEMMA3_LARGEST = {
    "hidden_size": 24,
    "intermediate_size": 30,
    "num_hidden_layers": 62,
    "head_dim": 4,
    "query_pre_attn_scalar": 8,
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
    "rope_theta": 500.0,
}


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Make a recipe with a few settings of its configuration changed."""
    return replace(recipe, config={**recipe.config, **changes})


RECIPES: dict[str, Recipe] = {
    "llama": LLAMA,
    "llama-linear": changed(LLAMA, {"rope_parameters": LINEAR}),
    "llama-yarn": changed(LLAMA, {"rope_parameters": YARN}),
    "llama-factors": replace(changed(LLAMA, {"rope_parameters": LLAMA3}), constants=llama3_factors),
    "qwen2": Recipe(
        architecture="qwen2",
        model="Qwen2ForCausalLM",
        config={
            "hidden_size": 64,
            "intermediate_size": 100,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    "phi2": Recipe(
        architecture="phi2",
        model="PhiForCausalLM",
        config={
            "hidden_size": 60,
            "intermediate_size": 130,
            "num_hidden_layers": 3,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.4,
            },
        },
        names={
            "self_attn.dense": "attn_output",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
            "final_layernorm": "output_norm",
        },
    ),
    "gemma3": GEMMA3,
    "gemma3-largest": changed(GEMMA3, GEMMA3_LARGEST),
}
