"""GLM 5: latent attention, experts in groups, and sparse attention; an indexer with interleaved
RoPE chooses positions for its layer, and for those after it that have none."""

from collections.abc import Mapping

from ingot.graph.ops import Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import (
    INDEXED_LATENTS,
    LATENT_BLOCKS,
    LATENT_SHAPES,
    indexer_keys,
    latent_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import grouped_experts, latent_network
from ingot.models.settings import Settings
from ingot.models.spec import Network

_SIGMOID = 2  # a file's number of this gating


def _keys(s: Settings) -> Mapping[str, Value]:
    return {**latent_keys(s), **indexer_keys(s), "expert_gating_func": _SIGMOID}


CHECKPOINTS = (
    Checkpoint(
        models=("GlmMoeDsaForCausalLM",),
        names=INDEXED_LATENTS,
        blocks=LATENT_BLOCKS,
        shapes=LATENT_SHAPES,
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    experts = grouped_experts(h, Gating.SIGMOID)
    return latent_network(h, experts, h.indexers(RopeLayout.INTERLEAVED))
