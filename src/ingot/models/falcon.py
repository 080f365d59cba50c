"""Falcon: multi-query or grouped-query attention, parallel attention and feed-forward network; in
the larger models each has its own norm."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


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
