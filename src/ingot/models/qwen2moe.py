"""Qwen 1.5 and 2 with experts: Qwen 2 whose MLP is a few experts of many, their weights as the
softmax gives them, and one behind a gate that every token uses."""

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
    """Describe the network."""
    rope = h.rope(RopeLayout.HALVES)
    dense = h.size("feed_forward_length")
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length", max(1, dense // h.experts_used)),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        shared=SharedExpertSpec(
            width=h.size("expert_shared_feed_forward_length", dense), gated=True
        ),
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope, qkv_bias=True
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=experts,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
