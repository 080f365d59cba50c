"""Mamba, Falcon Mamba: a state-space scan instead of attention; each channel has its own time step
and decay."""

from collections.abc import Mapping

from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import (
    BACKBONE,
    CONVOLUTION,
    DECAY,
    STATE_SPACE,
    state_space_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import LayerSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **state_space_keys(s),
        "ssm.time_step_rank": s.integer("time_step_rank"),
        "ssm.dt_b_c_rms": s.find("model_type") == "falcon_mamba",
    }


CHECKPOINTS = (
    Checkpoint(
        models=(
            "MambaForCausalLM",
            "FalconMambaForCausalLM",
        ),
        layers="backbone.layers",
        names={**STATE_SPACE, "mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt"},
        outer=BACKBONE,
        values=DECAY,
        shapes=CONVOLUTION,
        keys=_keys,
    ),
)


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
