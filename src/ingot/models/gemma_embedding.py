"""EmbeddingGemma (encoder): bidirectional attention, over a window in five of six layers; pre-norms
and post-norms, norms of query and key, a scaled embedding."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 6
_WINDOW_BASE = 10000.0


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    full_rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = (index + 1) % _FULL_EVERY == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=full_rope if full else window_rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            causal=False,
            window=0 if full else h.size("attention.sliding_window"),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                attention_post_norm=norm("post_attention_norm"),
                mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.GELU_TANH),
                mlp_norm=norm("ffn_norm"),
                mlp_post_norm=norm("post_ffw_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.width**0.5,
        logits=False,
    )
