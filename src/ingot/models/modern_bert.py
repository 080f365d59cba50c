"""ModernBERT (encoder): bidirectional attention with half-split RoPE, in two of three layers over a
window; layer norms without biases, GeGLU with gate and up in one tensor."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 3
_WINDOW_BASE = 10000.0


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER)

    full_rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    every = h.size("attention.sliding_window_pattern", _FULL_EVERY)
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = index % every == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=full_rope if full else window_rope,
            fused_qkv=True,
            causal=False,
            window=0 if full else h.size("attention.sliding_window"),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm") if index else None,
                mlp=MlpSpec(
                    width=h.size("feed_forward_length"), activation=Activation.GELU, fused_gate=True
                ),
                mlp_norm=norm("ffn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_norm=norm("token_embd_norm"),
        logits=False,
    )
