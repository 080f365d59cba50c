"""LFM2 MoE: short convolutions between two gates, in some layers attention with norms of each query
and key head, half-split RoPE; sigmoid experts with a selection bias, first layers dense."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    ShortConvSpec,
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        return AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=h.rope(RopeLayout.HALF_SPLIT),
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
        )

    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=True,
        selection_bias=True,
    )
    convolution = ShortConvSpec(taps=h.size("shortconv.l_cache"))
    layers = [
        LayerSpec(
            attention=attention(kv_heads) if kv_heads else convolution,
            attention_norm=norm("attn_norm"),
            mlp=dense if index < h.dense_layers else experts,
            mlp_norm=norm("ffn_norm"),
        )
        for index, kv_heads in enumerate(h.hybrid_kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("token_embd_norm"),  # what files call it
    )
