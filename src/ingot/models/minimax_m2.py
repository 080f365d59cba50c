"""MiniMax M2: norms over all heads of query and key, half-split RoPE on part of each head, sigmoid
experts with a selection bias in every layer."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    Network,
    NormOver,
    NormSpec,
)

CHECKPOINTS = (
    Checkpoint(
        models=("MiniMaxM2ForCausalLM",),
        keys=lambda s: {
            "expert_gating_func": 2,
            "expert_feed_forward_length": s.integer("intermediate_size"),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=True,
        selection_bias=True,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                query_norm=norm("attn_q_norm"),
                key_norm=norm("attn_k_norm"),
                norm_over=NormOver.ROW,
            ),
            attention_norm=norm("attn_norm"),
            mlp=experts,
            mlp_norm=norm("ffn_norm"),
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
