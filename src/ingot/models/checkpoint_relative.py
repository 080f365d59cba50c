"""How models with relative positions are stored: layers of numbered sublayers, one or two stacks.

`checkpoint.py` says what a stored form is.
"""

from collections.abc import Mapping
from typing import Any

from ingot.models.checkpoint import Place, Value
from ingot.models.settings import Settings

_REACH = 128  # tokens: the distance from which on all are in one bucket, which no file states
_ACTIVATIONS = ("relu", "gated-gelu")  # those that files mean without and with a gate


def _attention(sublayer: int, module: str, name: str) -> Mapping[str, Place]:
    """Attention and the norm before it."""
    stem = f"layer.{sublayer}"
    return {
        f"{stem}.layer_norm": f"{name}_norm",
        f"{stem}.{module}.relative_attention_bias": f"{name}_rel_b",
        **{f"{stem}.{module}.{matrix}": f"{name}_{matrix}" for matrix in "qkvo"},
    }


def _mlp(sublayer: int) -> Mapping[str, Place]:
    """A network with a gate (two matrices) or without, and the norm before it."""
    stem = f"layer.{sublayer}"
    return {
        f"{stem}.layer_norm": "ffn_norm",
        f"{stem}.DenseReluDense.wi": "ffn_up",
        f"{stem}.DenseReluDense.wi_0": "ffn_gate",
        f"{stem}.DenseReluDense.wi_1": "ffn_up",
        f"{stem}.DenseReluDense.wo": "ffn_down",
    }


ENCODER: Mapping[str, Place] = {**_attention(0, "SelfAttention", "attn"), **_mlp(1)}
DECODER: Mapping[str, Place] = {
    **_attention(0, "SelfAttention", "attn"),
    **_attention(1, "EncDecAttention", "cross_attn"),
    **_mlp(2),
}
OUTER: Mapping[str, Place] = {
    "shared": "token_embd",
    "encoder.final_layer_norm": "enc.output_norm",
}
COPIES = ("coder.embed_tokens.weight",)  # of the shared embedding, in some files
DEFAULTS: Mapping[str, Any] = {"n_positions": 512, "feed_forward_proj": "relu"}


def can_be_stated(s: Settings) -> bool:
    """Whether a file can mean such a model: reach and activation have no key."""
    reach = s.integer("relative_attention_max_distance", default=_REACH)
    return reach == _REACH and s.find("feed_forward_proj") in _ACTIVATIONS


def scales_output(s: Settings) -> bool:
    """Whether what is before the output matrix is scaled; a file with its own matrix says no."""
    return s.boolean("scale_decoder_outputs", s.boolean("tie_word_embeddings", True))


def relative_keys(s: Settings) -> Mapping[str, Value]:
    """What every stack of such layers states."""
    size, epsilon = s.positive("d_kv"), s.number("layer_norm_epsilon", default=1e-6)
    return {
        "feed_forward_length": s.positive("d_ff"),
        "attention.head_count": s.positive("num_heads"),
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_epsilon": epsilon,
        "attention.layer_norm_rms_epsilon": epsilon,
        "attention.relative_buckets_count": s.positive(
            "relative_attention_num_buckets", default=32
        ),
    }


def relative_decoder_keys(s: Settings) -> Mapping[str, Value]:
    """The same of a model that writes."""
    return {
        **relative_keys(s),
        "decoder_block_count": s.positive("num_decoder_layers", default=s.layers),
        "decoder_start_token_id": s.integer("decoder_start_token_id", "pad_token_id", default=0),
    }
