"""Jina embeddings v2 (encoder): bidirectional attention with ALiBi instead of positions, GELU with
a gate, post-norm layer norms, in some models norms of queries and keys."""

import numpy as np

from ingot.graph.ops import Activation
from ingot.models.checkpoint import Checkpoint, Order, in_order
from ingot.models.checkpoint_parts import (
    EMBEDDINGS,
    ENCODER_ATTENTION,
    UNUSED_BY_EMBEDDERS,
    encoder_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import layer_norm, post_norm_encoder
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, MlpSpec, Network, NormOver, NormSpec


def _gate_first(rows: int, _: Settings) -> Order:
    """Models for code store the gate after what it multiplies; files have it before."""
    return np.roll(np.arange(rows), rows // 2)


CHECKPOINTS = (
    Checkpoint(
        models=("JinaBertModel", "JinaBertForMaskedLM"),
        accepts=lambda s: (
            s.find("feed_forward_type") == "geglu" and s.find("position_embedding_type") == "alibi"
        ),
        layers="encoder.layer",
        names={
            **ENCODER_ATTENTION,
            "mlp.gated_layers": "ffn_up",
            "mlp.wo": "ffn_down",
            "mlp.layernorm": "layer_output_norm",
            # Models for code.
            "attention.self.layer_norm_q": "attn_q_norm",
            "attention.self.layer_norm_k": "attn_k_norm",
            "layer_norm_1": "attn_norm_2",
            "mlp.up_gated_layer": in_order(_gate_first, "ffn_up"),
            "mlp.down_layer": "ffn_down",
            "layer_norm_2": "layer_output_norm",
        },
        outer={**EMBEDDINGS, "embeddings.LayerNorm": "token_embd_norm"},
        prefixes=("bert.",),
        ignored=UNUSED_BY_EMBEDDERS,
        keys=encoder_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def optional(name: str) -> NormSpec | None:
        return layer_norm(h, name) if h.has_tensor(f"blk.0.{name}.weight") else None

    mlp = MlpSpec(
        width=h.size("feed_forward_length"),
        activation=Activation.GELU,
        fused_gate=not h.has_tensor("blk.0.ffn_gate.weight"),  # as converters leave it now
        down_bias=True,
    )
    return post_norm_encoder(
        h,
        lambda kv_heads: AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None,
            qkv_bias=True,
            output_bias=True,
            query_norm=optional("attn_q_norm"),
            key_norm=optional("attn_k_norm"),
            norm_over=NormOver.ROW,
            causal=False,
            alibi=True,
        ),
        [mlp] * h.layers,
        again_norm=optional("attn_norm_2"),
    )
