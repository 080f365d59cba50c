"""SmolLM 3: interleaved RoPE, SwiGLU; every fourth layer has no position embedding."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_UNTURNED_EVERY = 4


CHECKPOINTS = (Checkpoint(models=("SmolLM3ForCausalLM",), names=INTERLEAVED),)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope if (index + 1) % _UNTURNED_EVERY else None,
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
