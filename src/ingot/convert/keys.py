"""The metadata of a file that say how its network is built, from the settings of a checkpoint.

In: settings and the stored form of an architecture. Out: keys without the architecture's name in
front, as llama.cpp's converter writes them, and tensors that RoPE needs. It does not know
vocabularies.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ingot.arrays import Floats
from ingot.errors import ConversionError
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.settings import Settings, rope_number

# Key, and the names that the setting has in different models.
_INTEGERS = (
    ("feed_forward_length", ("intermediate_size", "n_inner", "ffn_hidden_size")),
    ("attention.head_count_kv", ("num_key_value_heads", "num_kv_heads")),
    ("expert_count", ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")),
    ("expert_used_count", ("num_experts_per_tok", "moe_k")),
    ("expert_feed_forward_length", ("moe_intermediate_size",)),
    ("vocab_size", ("vocab_size",)),
)
_CONTEXT = (
    "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length",
    "model_max_length",
)  # fmt: skip
_DEFAULT_CONTEXT = 1 << 20  # of models without positions
_EPSILONS = (
    ("attention.layer_norm_rms_epsilon", ("rms_norm_eps",)),
    (
        "attention.layer_norm_epsilon",
        ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    ),
)


def network_keys(
    checkpoint: Checkpoint, settings: Settings, mtp_layers: int = 0
) -> dict[str, Value]:
    """All keys of the network; those of the architecture win."""
    keys: dict[str, Value] = {
        "block_count": settings.layers + mtp_layers,
        "nextn_predict_layers": mtp_layers or None,
        "context_length": settings.positive(*_CONTEXT, default=_DEFAULT_CONTEXT),
        "embedding_length": settings.width,
    }
    if settings.find("num_attention_heads", "n_head") is not None:
        keys["attention.head_count"] = settings.heads
        if settings.find("head_dim") is not None:
            keys["attention.key_length"] = settings.head_size
            keys["attention.value_length"] = settings.head_size
        keys |= _rope_keys(settings)
    for key, names in _INTEGERS:
        if settings.find(*names) is not None:
            keys[key] = settings.per_layer(*names)
    for key, names in _EPSILONS:
        if settings.find(*names) is not None:
            keys[key] = settings.number(*names)
    keys |= checkpoint.keys(settings)
    return {key: value for key, value in keys.items() if value is not None}


def _rope_keys(settings: Settings) -> dict[str, Value]:
    rope = settings.rope
    if rope is None:
        return {}
    share = rope_number(rope, "partial_rotary_factor", 1.0)
    keys: dict[str, Value] = {"rope.dimension_count": int(settings.head_size * share)}
    if "rope_theta" in rope:
        keys["rope.freq_base"] = rope_number(rope, "rope_theta")
    kind = rope["rope_type"]
    if kind in ("linear", "yarn"):
        keys["rope.scaling.type"] = kind
        keys["rope.scaling.factor"] = rope_number(rope, "factor")
    if kind == "yarn":
        for name in ("beta_fast", "beta_slow"):
            if rope.get(name) is not None:
                keys[f"rope.scaling.yarn_{name}"] = rope_number(rope, name)
    if kind in ("yarn", "longrope") and rope.get("original_max_position_embeddings"):
        original = Settings(rope).positive("original_max_position_embeddings")
        keys["rope.scaling.original_context_length"] = original
        if kind == "longrope":
            if original == 1:
                raise ConversionError("config.json: an original context of one token is too short")
            scale = settings.positive(*_CONTEXT) / original
            factor = math.sqrt(1 + math.log(max(scale, 1.0)) / math.log(original))
            keys["rope.scaling.attn_factor"] = factor
    return keys


def rope_tensors(settings: Settings, size: int) -> dict[str, Floats]:
    """Divisors of the frequencies of RoPE on so many elements of a head, if the model has them."""
    rope = settings.rope
    if rope is None or settings.find("num_attention_heads", "n_head") is None:
        return {}
    if rope["rope_type"] == "llama3":
        return {"rope_freqs.weight": _llama3_factors(rope, size)}
    if rope["rope_type"] == "proportional":
        return {"rope_freqs.weight": _proportional_factors(rope, size)}
    if rope["rope_type"] == "longrope":
        found = Settings(rope)
        return {
            f"rope_factors_{name}.weight": np.array(found.numbers(f"{name}_factor"), np.float32)
            for name in ("short", "long")
        }
    return {}


def _proportional_factors(rope: Mapping[str, Any], size: int) -> Floats:
    """Pairs that do not turn: divided by so much that they stand still."""
    turning = int(size // 2 * rope_number(rope, "partial_rotary_factor", 1.0))
    return np.where(np.arange(size // 2) < turning, 1, 1e30).astype(np.float32)


def _llama3_factors(rope: Mapping[str, Any], head_size: int) -> Floats:
    """Llama 3: long wavelengths are divided by the factor, those in between by less."""
    factor, base = rope_number(rope, "factor", 8.0), rope_number(rope, "rope_theta", 10000.0)
    low, high = (
        rope_number(rope, "low_freq_factor", 1.0),
        rope_number(rope, "high_freq_factor", 4.0),
    )
    original = rope_number(rope, "original_max_position_embeddings", 8192)
    if min(factor, base, low, original) <= 0 or high <= low:
        raise ConversionError("config.json: the parameters of RoPE are not possible")
    factors = []
    for pair in range(head_size // 2):
        length = 2 * math.pi * base ** (2 * pair / head_size)
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(factor)
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)
