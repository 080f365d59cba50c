"""LFM2: short convolutions between two gates, and in some layers attention with norms of each query
and key head, half-split RoPE."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
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

    convolution = ShortConvSpec(taps=h.size("shortconv.l_cache"))
    layers = [
        LayerSpec(
            attention=attention(kv_heads) if kv_heads else convolution,
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=norm("ffn_norm"),
        )
        for kv_heads in h.hybrid_kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("token_embd_norm"),  # what files call it
    )
