"""Nomic Embed v2 (encoder): bidirectional attention, half-split RoPE, query, key and value in one
tensor, biases, post-norm layer norms; softmax experts without gates in every other layer."""

from ingot.graph.ops import Activation, Gating, NormKind, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = MlpSpec(
        width=h.size("feed_forward_length"), activation=Activation.GELU, gated=False, bias=True
    )
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("feed_forward_length"),
        activation=Activation.GELU,
        gating=Gating.SOFTMAX,
        gated=False,
    )
    every = h.size("moe_every_n_layers")
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                qkv_bias=True,
                output_bias=True,
                causal=False,
            ),
            attention_norm=None,
            attention_stream_norm=norm("attn_output_norm"),
            mlp=experts if index % every == 1 else mlp,
            mlp_norm=None,
            mlp_stream_norm=norm("layer_output_norm"),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=None,
        token_types=h.token_types,
        embedding_norm=norm("token_embd_norm"),
        logits=False,
    )
