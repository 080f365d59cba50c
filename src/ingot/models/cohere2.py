"""Command R7B and A: layer norms without biases, parallel attention and feed-forward network after
one norm, scaled logits; three of four layers have a sliding window, the others no RoPE."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 4


CHECKPOINTS = (
    Checkpoint(
        models=("Cohere2ForCausalLM",),
        keys=lambda s: {
            **window_key(s),
            "logit_scale": s.number("logit_scale"),
            "rope.scaling.type": "none",
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER)

    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = (index + 1) % _FULL_EVERY == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None if full else rope,
            window=0 if full else h.window(),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
                mlp_norm=None,
                parallel=True,
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        logit_scale=h.number("logit_scale"),
    )
