"""Mamba 2, Codestral Mamba: a state-space scan instead of attention; the channels of a head share a
decay, and each group of heads is normalized after the gate."""

from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import LayerSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    layer = LayerSpec(
        attention=h.mamba2(NormSpec("ssm_norm", h.rms_epsilon)),
        attention_norm=NormSpec("attn_norm", h.rms_epsilon),
        mlp=None,
        mlp_norm=None,
    )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=[layer] * h.layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
