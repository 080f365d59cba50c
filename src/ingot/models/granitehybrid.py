"""Granite 4 (hybrid), Bamba: Mamba 2 in most layers and attention in some, with or without RoPE;
Granite's multipliers; a feed-forward network, or experts with a shared one."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        turned = h.boolean("rope.scaling.finetuned", True)
        return AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=h.rope(RopeLayout.INTERLEAVED) if turned else None,
            scale=h.number("attention.scale", h.head_size**-0.5),
        )

    def experts() -> ExpertsSpec:
        shared = h.count("expert_shared_feed_forward_length")
        return ExpertsSpec(
            count=h.experts,
            used=h.experts_used,
            width=h.size("feed_forward_length"),
            activation=Activation.SILU,
            gating=Gating.CHOSEN_SOFTMAX,
            shared=SharedExpertSpec(width=shared) if shared else None,
        )

    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    states = h.mamba2(norm("ssm_norm"))
    layers = [
        LayerSpec(
            attention=attention(kv_heads) if kv_heads else states,
            attention_norm=norm("attn_norm"),
            mlp=experts() if h.count("expert_count") else dense,
            mlp_norm=norm("ffn_norm"),
            residual_scale=h.number("residual_scale", 1.0),
        )
        for kv_heads in h.hybrid_kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.number("embedding_scale", 1.0),
        logit_scale=1 / h.positive("logit_scale", 1.0),
    )
