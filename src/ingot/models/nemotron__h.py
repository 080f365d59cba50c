"""Nemotron-H, Nemotron Nano 2: each layer is Mamba 2, attention without positions, or a
feed-forward network with a squared ReLU."""

from ingot.graph.ops import Activation
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        return AttentionSpec(heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=None)

    def mlp(width: int) -> MlpSpec:
        return MlpSpec(width=width, activation=Activation.RELU_SQUARED, gated=False)

    states = h.mamba2(norm("ssm_norm"))
    layers = []
    for kv_heads, width in zip(
        h.hybrid_kv_heads, h.per_layer("feed_forward_length", least=0), strict=True
    ):
        mixer = attention(kv_heads) if kv_heads else None if width else states
        layers.append(
            LayerSpec(
                attention=mixer,
                attention_norm=norm("attn_norm") if mixer else None,
                mlp=None if mixer else mlp(width),
                mlp_norm=None if mixer else norm("attn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
