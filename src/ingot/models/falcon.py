"""Falcon: multi-query or grouped-query attention, parallel attention and feed-forward network; in
the larger models each has its own norm."""

import numpy as np

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint, Order, grouped, in_order
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

OWN_MIX_RULES = True  # llama.cpp's quantizer has rules for this architecture alone


def _kv_heads(s: Settings) -> int:
    if s.boolean("new_decoder_architecture", False):
        return s.positive("num_kv_heads")
    return 1 if s.boolean("multi_query", True) else s.heads


def _all_queries_first(rows: int, s: Settings) -> Order:
    return np.concatenate(grouped(rows, s.heads, _kv_heads(s)))


CHECKPOINTS = (
    Checkpoint(
        models=("FalconForCausalLM",),
        layers="transformer.h",
        names={
            "self_attention.query_key_value": in_order(_all_queries_first, "attn_qkv"),
            "self_attention.dense": "attn_output",
            "ln_attn": "attn_norm_2",
            "ln_mlp": "attn_norm",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        outer={"transformer.word_embeddings": "token_embd", "transformer.ln_f": "output_norm"},
        keys=lambda s: {
            "attention.head_count_kv": _kv_heads(s),
            "feed_forward_length": s.integer("ffn_hidden_size", default=4 * s.width),
        },
        defaults={"rope_theta": 10000.0, "max_position_embeddings": 2048},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    own_norms = h.has_tensor("blk.0.attn_norm_2.weight")
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
            ),
            attention_norm=norm("attn_norm_2" if own_norms else "attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"), activation=Activation.GELU, gated=False
            ),
            mlp_norm=norm("attn_norm") if own_norms else None,
            parallel=True,
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
