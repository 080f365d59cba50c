"""Parts of stored forms of layers with a state: convolutions, state spaces, the gated delta rule.

`checkpoint.py` says what a stored form is. Nothing here knows which architectures use it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ingot.arrays import Floats
from ingot.errors import ConversionError
from ingot.models.checkpoint import ONE_MORE, Checkpoint, Order, Place, Shape, Value, in_order
from ingot.models.checkpoint_parts import axes_key, layer_kinds
from ingot.models.settings import Settings

_FULL = "full_attention"
_ATTENTION = (_FULL, "attention", "*")  # kinds of layers that have attention


def hybrid_kv_heads(s: Settings, kinds: Sequence[str]) -> list[int]:
    """The key heads of each layer; 0 if it has no attention."""
    return [s.kv_heads if kind in _ATTENTION else 0 for kind in kinds]


def has_states(s: Settings) -> bool:
    """Whether some layers of a hybrid have no attention."""
    return 0 in hybrid_kv_heads(s, layer_kinds(s, "layer_types", "layers_block_type"))


def attends_everywhere(s: Settings) -> bool:
    """Whether a model of a hybrid class has attention and RoPE in all layers."""
    return not has_states(s) and s.find("position_embedding_type") == "rope"


# Short convolutions.
SHORT_CONVOLUTIONS: Mapping[str, Place] = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
}
SHORT_CONVOLUTION: Mapping[str, Callable[[Shape, Settings], Shape]] = {
    "shortconv.conv.weight": lambda shape, _: (shape[0], shape[-1])
}


def short_convolution_keys(s: Settings) -> Mapping[str, Value]:
    """Which layers have attention, and how long the convolutions of the others are."""
    kinds: Sequence[str]
    if s.find("layer_types") is None:  # older files
        attention = {int(number) for number in s.numbers("full_attn_idxs")}
        kinds = [_FULL if number in attention else "conv" for number in range(s.layers)]
    else:
        kinds = layer_kinds(s, "layer_types")
    return {
        "attention.head_count_kv": hybrid_kv_heads(s, kinds),
        "attention.layer_norm_epsilon": None,
        "attention.layer_norm_rms_epsilon": s.number("norm_eps", "block_norm_eps"),
        "shortconv.l_cache": s.integer("conv_L_cache"),
    }


# State spaces.
BACKBONE: Mapping[str, Place] = {
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
}
STATE_SPACE: Mapping[str, Place] = {
    "norm": "attn_norm",
    "mixer.in_proj": "ssm_in",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.out_proj": "ssm_out",
}
DECAY: Mapping[str, Callable[[Floats], Floats]] = {"ssm_a": lambda a: -np.exp(a)}
CONVOLUTION: Mapping[str, Callable[[Shape, Settings], Shape]] = {
    "ssm_conv1d.weight": lambda shape, _: (shape[0], shape[-1])
}


def state_space_keys(s: Settings) -> Mapping[str, Value]:
    """What all models with a state space state."""
    return {
        "attention.head_count": 0,
        "feed_forward_length": 0,
        "attention.layer_norm_epsilon": None,
        "attention.layer_norm_rms_epsilon": s.number("layer_norm_epsilon"),
        "ssm.conv_kernel": s.integer("conv_kernel"),
        "ssm.inner_size": s.integer("intermediate_size", default=s.integer("expand") * s.width),
        "ssm.state_size": s.integer("state_size"),
    }


# Mamba 2: heads in groups.
def mamba2_names(mixer: str) -> Mapping[str, Place]:
    """The names of a mixer, which begin so."""
    return {
        f"{mixer}in_proj": "ssm_in",
        f"{mixer}conv1d": "ssm_conv1d",
        f"{mixer}A_log": "ssm_a",
        f"{mixer}D": "ssm_d",
        f"{mixer}dt_bias": "ssm_dt.bias",
        f"{mixer}norm": "ssm_norm",
        f"{mixer}out_proj": "ssm_out",
    }


def mamba2_shapes(groups: str) -> Mapping[str, Callable[[Shape, Settings], Shape]]:
    """Shapes in the file; a setting of this name says how many groups there are."""

    def by_group(shape: Shape, s: Settings) -> Shape:
        count = s.positive(groups)
        return (count, shape[0] // count)

    return {
        **CONVOLUTION,
        "ssm_a": lambda shape, _: (*shape, 1),
        "ssm_d": lambda shape, _: (*shape, 1),
        "ssm_norm.weight": by_group,
    }


def mamba2_keys(s: Settings, width: int) -> Mapping[str, Value]:
    """Sizes of a mixer of this width beside attention."""
    return {
        "ssm.conv_kernel": s.integer("mamba_d_conv", "conv_kernel"),
        "ssm.inner_size": width,
        "ssm.state_size": s.integer("mamba_d_state", "ssm_state_size"),
        "ssm.time_step_rank": s.integer("mamba_n_heads", "mamba_num_heads"),
        "ssm.group_count": s.integer("mamba_n_groups", "n_groups"),
    }


# Layers of one block: a state space, attention, or a network.
SINGLE_BLOCKS: Mapping[str, Place] = {
    **mamba2_names("mixer."),
    "norm": "attn_norm",
    "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k",
    "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
}


def block_kinds(s: Settings) -> Sequence[str]:
    """What each layer is: names, or the letters of older files."""
    return layer_kinds(s, "layers_block_type", "hybrid_override_pattern")


def single_block_keys(s: Settings, wide: tuple[str, str], width: int) -> Mapping[str, Value]:
    """Sizes of the layers; those of the kinds `wide` have a network of this width."""
    kinds = block_kinds(s)
    return {
        **mamba2_keys(s, s.integer("mamba_num_heads") * s.integer("mamba_head_dim")),
        "attention.head_count_kv": hybrid_kv_heads(s, kinds),
        "attention.layer_norm_rms_epsilon": s.number("layer_norm_epsilon", "norm_eps"),
        "feed_forward_length": [width if kind in wide else 0 for kind in kinds],
    }


# The gated delta rule.
DELTA: Mapping[str, Place] = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}


def delta_keys(s: Settings) -> Mapping[str, Value]:
    """Sizes of the delta rule, and which layers have attention instead."""
    heads, interval = s.integer("linear_num_value_heads"), 4
    if s.find("layer_types") is not None:
        kinds = layer_kinds(s, "layer_types")
        interval = kinds.index(_FULL) + 1 if _FULL in kinds else s.layers + 1
        if [n for n, kind in enumerate(kinds, 1) if kind == _FULL] != [
            *range(interval, s.layers + 1, interval)
        ]:
            raise ConversionError("config.json: layer_types has no attention at equal intervals")
    return {
        "expert_shared_feed_forward_length": s.find("shared_expert_intermediate_size"),
        "full_attention_interval": s.integer("full_attention_interval", default=interval),
        "ssm.conv_kernel": s.integer("linear_conv_kernel_dim"),
        "ssm.state_size": s.integer("linear_key_head_dim"),
        "ssm.group_count": s.integer("linear_num_key_heads"),
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * s.integer("linear_value_head_dim"),
    }


def _tiled_heads(count: int, s: Settings) -> Order:
    """The first value head of each key head, then the second; stored key head by key head."""
    heads = s.positive("linear_num_key_heads")
    repeat = s.positive("linear_num_value_heads") // heads
    return np.arange(count).reshape(heads, repeat, -1).swapaxes(0, 1).reshape(-1)


def _tiled_values(rows: int, s: Settings) -> Order:
    """The same for values that follow queries and keys."""
    others = 2 * s.positive("linear_num_key_heads") * s.positive("linear_key_head_dim")
    return np.concatenate([np.arange(others), others + _tiled_heads(rows - others, s)])


_TILED_DELTA: Mapping[str, Place] = {
    **DELTA,
    "linear_attn.in_proj_qkv": in_order(_tiled_values, "attn_qkv"),
    "linear_attn.conv1d": in_order(_tiled_values, "ssm_conv1d"),
    "linear_attn.in_proj_z": in_order(_tiled_heads, "attn_gate"),
    "linear_attn.in_proj_a": in_order(_tiled_heads, "ssm_alpha"),
    "linear_attn.in_proj_b": in_order(_tiled_heads, "ssm_beta"),
    "linear_attn.dt_bias": in_order(_tiled_heads, "ssm_dt.bias"),
    "linear_attn.A_log": in_order(_tiled_heads, "ssm_a"),
}
# A layer for multi-token prediction, as it is stored apart.
APART_MTP: Mapping[str, Place] = {
    "fc": "nextn.eh_proj",
    "pre_fc_norm_embedding": "nextn.enorm",
    "pre_fc_norm_hidden": "nextn.hnorm",
    "norm": "nextn.shared_head_norm",
}
_SECTIONS = (11, 11, 10)  # pairs that M-RoPE rotates by time, height and width


def _tiled_delta_keys(s: Settings) -> Mapping[str, Value]:
    """The same keys, and the axes of RoPE."""
    return {**delta_keys(s), **axes_key(s, _SECTIONS)}


def tiled_delta_checkpoint(*models: str) -> Checkpoint:
    """A model with tiled heads of the delta rule, and layers for multi-token prediction apart."""
    return Checkpoint(
        models=models,
        mtp_layers="mtp.layers",
        names={**_TILED_DELTA, **APART_MTP},
        values={**DECAY, "ssm_norm.weight": lambda w: w, **ONE_MORE},
        columns={"ssm_out.weight": _tiled_heads},
        shapes=CONVOLUTION,
        keys=_tiled_delta_keys,
    )
