"""Qwen 3.5 and 3.6 MoE: the gated delta rule in three of four layers, in the others attention with
a gate, norms of each head and half-split RoPE on part of it; softmax experts and a gated shared
one."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        normalize=True,
        shared=SharedExpertSpec(width=h.size("expert_shared_feed_forward_length"), gated=True),
    )
    delta = h.delta(tiled=True)
    layers = []
    for attends, kv_heads in zip(h.attention_layers, h.kv_heads, strict=True):
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            gate_in_query=True,
        )
        layers.append(
            LayerSpec(
                attention=attention if attends else delta,
                attention_norm=norm("attn_norm"),
                mlp=mlp,
                mlp_norm=norm("post_attention_norm"),
            )
        )
    last = h.layers - h.mtp_layers
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers[:last],
        output_norm=norm("output_norm"),
        mtp_layers=h.mtp_layers,
    )
