"""Nemotron: layer norms, an ungated feed-forward network with squared ReLU, RoPE on half of each
head."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import ONE_MORE, Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (Checkpoint(models=("NemotronForCausalLM",), values=ONE_MORE),)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=Activation.RELU_SQUARED,
                gated=False,
            ),
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
    )
