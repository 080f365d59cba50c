"""Mamba, Falcon Mamba: a state-space scan instead of attention; each channel has its own time step
and decay."""

from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import LayerSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    plain = NormSpec("ssm_plain", h.rms_epsilon, weight=False)
    layer = LayerSpec(
        attention=h.mamba((plain,) * 3 if h.boolean("ssm.dt_b_c_rms", False) else None),
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
