"""Mamba 2, Codestral Mamba: a state-space scan instead of attention; the channels of a head share a
decay, and each group of heads is normalized after the gate."""

from collections.abc import Mapping

from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import (
    BACKBONE,
    DECAY,
    mamba2_names,
    mamba2_shapes,
    state_space_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import LayerSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **state_space_keys(s),
        "ssm.time_step_rank": s.integer("num_heads"),
        "ssm.group_count": s.integer("n_groups"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Mamba2ForCausalLM",),
        layers="backbone.layers",
        names={"norm": "attn_norm", **mamba2_names("mixer.")},
        outer=BACKBONE,
        values=DECAY,
        shapes=mamba2_shapes("n_groups"),
        keys=_keys,
    ),
)


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
