"""EXAONE 4: post-norms only, norms of each query and key head; in the larger model three of four
layers have a sliding window, the others no RoPE."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import PRE_AND_POST_NORMS, Checkpoint, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 4


CHECKPOINTS = (
    Checkpoint(
        models=("Exaone4ForCausalLM",),
        names=PRE_AND_POST_NORMS,
        keys=lambda s: window_key(s) if s.find("sliding_window") else {},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    with_windows = h.integer("attention.sliding_window", 0) > 0
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = (index + 1) % _FULL_EVERY == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None if with_windows and full else rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            window=0 if full else h.window(),
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
