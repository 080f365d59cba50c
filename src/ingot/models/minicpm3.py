"""MiniCPM 3: multi-head latent attention with half-split RoPE, multipliers for the embedding,
residual additions and logits."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import LayerSpec, MlpSpec, Network, NormSpec

_EMBEDDING_SCALE, _DEPTH_SCALE, _BASE_WIDTH = 12.0, 1.4, 256  # which no file states


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    layer = LayerSpec(
        attention=h.latents(RopeLayout.HALF_SPLIT),
        attention_norm=norm("attn_norm"),
        mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
        mlp_norm=norm("ffn_norm"),
        residual_scale=_DEPTH_SCALE / h.layers**0.5,
    )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=[layer] * h.layers,
        output_norm=norm("output_norm"),
        embedding_scale=_EMBEDDING_SCALE,
        logit_scale=_BASE_WIDTH / h.width,
    )
