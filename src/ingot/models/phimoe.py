"""Phi 3.5 MoE: layer norms, biases on attention and output, two experts per token, each weighted by
a sparse mixer against its close rivals only."""

from ingot.graph.ops import Activation, Gating, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormSpec

_NEAR = 0.02  # twice the jitter it was trained with, which files do not hold


CHECKPOINTS = (
    Checkpoint(
        models=(
            "PhimoeForCausalLM",
            "PhiMoEForCausalLM",
        ),
        keys=window_key,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.SPARSE_MIXER,
        near=_NEAR,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=True,
                output_bias=True,
                window=h.window(),
            ),
            attention_norm=norm("attn_norm"),
            mlp=experts,
            mlp_norm=norm("ffn_norm"),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        output_bias=True,
    )
