"""Command R: layer norms without biases, parallel attention and feed-forward network after one
norm, scaled logits; the larger model normalizes each query and key head."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormOver, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("CohereForCausalLM",),
        keys=lambda s: {"logit_scale": s.number("logit_scale"), "rope.scaling.type": "none"},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER)

    def head_norm(name: str) -> NormSpec | None:
        return norm(name) if h.has_tensor(f"blk.0.{name}.weight") else None

    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                query_norm=head_norm("attn_q_norm"),
                key_norm=head_norm("attn_k_norm"),
                norm_over=NormOver.EACH_HEAD,
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=None,
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
        logit_scale=h.number("logit_scale"),
    )
