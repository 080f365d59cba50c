"""Granite MoE: Granite's multipliers, experts weighted by a softmax over the chosen ones, and in
some models a shared expert."""

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
    rope = h.rope(RopeLayout.INTERLEAVED)
    shared = None
    if h.integer("expert_shared_feed_forward_length", 0):
        shared = SharedExpertSpec(width=h.size("expert_shared_feed_forward_length"))
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.CHOSEN_SOFTMAX,
        shared=shared,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                scale=h.number("attention.scale", h.head_size**-0.5),
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=experts,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
            residual_scale=h.number("residual_scale", 1.0),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
        embedding_scale=h.number("embedding_scale", 1.0),
        logit_scale=1 / h.positive("logit_scale", 1.0),
    )
