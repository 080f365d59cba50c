"""Mamba, Falcon Mamba: a state-space scan instead of attention; each channel has its own time step
and decay."""

from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import LayerSpec, MambaSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    states = MambaSpec(
        width=h.size("ssm.inner_size"),
        states=h.size("ssm.state_size"),
        taps=h.size("ssm.conv_kernel"),
        step_rank=h.size("ssm.time_step_rank"),
        inner_norm=h.rms_epsilon if h.boolean("ssm.dt_b_c_rms", False) else None,
    )
    layer = LayerSpec(
        attention=states,
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
