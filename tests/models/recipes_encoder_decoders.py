"""Recipes of encoder-decoders (see recipes.py), and of the encoder of one alone.

The first `PROMPT` tokens are what the encoder reads; the logits are those of the others.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from models.recipe import Recipe, changed

_LAYERS = 4  # the most of a recipe
SIZES = {"d_model": 60, "d_kv": 12, "d_ff": 90, "num_heads": 5}
NAMES: Mapping[str, str] = {
    "shared": "token_embd",
    "encoder.block.": "enc.blk.",
    "decoder.block.": "dec.blk.",
    "encoder.final_layer_norm": "enc.output_norm",
    "decoder.final_layer_norm": "dec.output_norm",
    "layer.0.SelfAttention.relative_attention_bias": "attn_rel_b",
    "layer.0.SelfAttention.": "attn_",
    "layer.0.layer_norm": "attn_norm",
    "layer.1.EncDecAttention.": "cross_attn_",
    **{
        f"{stack}.blk.{layer}.layer.1.layer_norm": f"{stack}.blk.{layer}.{name}"
        for layer in range(_LAYERS)
        for stack, name in (("enc", "ffn_norm"), ("dec", "cross_attn_norm"))
    },
    "layer.2.layer_norm": "ffn_norm",
    "layer.1.DenseReluDense.": "",
    "layer.2.DenseReluDense.": "",
    "wi_0": "ffn_gate",
    "wi_1": "ffn_up",
    "wi.": "ffn_up.",
    "wo.": "ffn_down.",
}


def keys(c: Any) -> dict[str, Any]:
    """What the converter writes besides the usual keys."""
    return {
        "feed_forward_length": c.d_ff,
        "attention.relative_buckets_count": c.relative_attention_num_buckets,
        "attention.layer_norm_rms_epsilon": c.layer_norm_epsilon,
    }


def decoder_keys(c: Any) -> dict[str, Any]:
    """The same of a model with a decoder."""
    return {
        **keys(c),
        "decoder_block_count": c.num_decoder_layers,
        "decoder_start_token_id": c.decoder_start_token_id,
    }


def with_own_output(model: Any) -> None:
    """Give the output matrix weights of its own, as checkpoints of the later models have."""
    torch: Any = import_module("torch")
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    model.config.tie_word_embeddings = False


T5 = Recipe(
    architecture="t5",
    model="T5ForConditionalGeneration",
    config={
        **SIZES,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 7,
    },
    metadata=decoder_keys,
    names=NAMES,
    left_out=("embed_tokens",),
    adjust=with_own_output,
    encoder_decoder=True,
    tokens=210,
)

# The first models: no gate, and the embedding is the output.
TIED = replace(
    T5,
    config={
        **SIZES,
        "d_model": 64,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "relative_attention_num_buckets": 12,
        "feed_forward_proj": "relu",
        "decoder_start_token_id": 0,
    },
    adjust=lambda _: None,
)

ENCODER_DECODERS: dict[str, Recipe] = {
    "t5": T5,
    "t5-tied": TIED,
    # More layers write than read.
    "t5-deep": changed(TIED, {"num_decoder_layers": 3}),
    # Buckets in every layer.
    "t5-umt5": replace(
        T5,
        model="UMT5ForConditionalGeneration",
        config={
            **SIZES,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "feed_forward_proj": "gated-gelu",
            "decoder_start_token_id": 0,
        },
    ),
}
T5_ENCODER = replace(
    T5,
    architecture="t5encoder",
    model="T5EncoderModel",
    config={**SIZES, "num_layers": 3, "feed_forward_proj": "gated-gelu"},
    metadata=keys,
    adjust=lambda _: None,
    encoder_decoder=False,
    encoder=True,
    tokens=70,
)
