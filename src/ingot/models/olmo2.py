"""OLMo 2 and 3: post-norms only, norms over all heads of query and key; in OLMo 3, three of four
layers have a sliding window and RoPE without context scaling."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import PRE_AND_POST_NORMS, Checkpoint, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormOver, NormSpec

_FULL_EVERY = 4


CHECKPOINTS = (
    Checkpoint(
        models=(
            "Olmo2ForCausalLM",
            "Olmo3ForCausalLM",
        ),
        names=PRE_AND_POST_NORMS,
        keys=lambda s: window_key(s) if s.find("sliding_window") else {},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, h.number("rope.freq_base", 10000.0))
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        window = h.window() if (index + 1) % _FULL_EVERY else 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=window_rope if window else rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            norm_over=NormOver.ROW,
            window=window,
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=None,
                attention_post_norm=norm("post_attention_norm"),
                mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
                mlp_norm=None,
                mlp_post_norm=norm("post_ffw_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
