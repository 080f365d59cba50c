"""Arcee AFM: RMS norms, interleaved RoPE, an ungated feed-forward network with squared ReLU."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (Checkpoint(models=("ArceeForCausalLM",), names=INTERLEAVED),)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    mlp = MlpSpec(
        width=h.size("feed_forward_length"), activation=Activation.RELU_SQUARED, gated=False
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=mlp,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
