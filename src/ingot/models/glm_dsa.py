"""GLM 5: latent attention, experts in groups, and sparse attention; an indexer with interleaved
RoPE chooses positions for its layer, and for those after it that have none."""

from ingot.graph.ops import Gating, RopeLayout
from ingot.models.checkpoint_parts import indexed_checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import grouped_experts, latent_network
from ingot.models.spec import Network

CHECKPOINTS = (indexed_checkpoint("GlmMoeDsaForCausalLM"),)


def network(h: Hyperparameters) -> Network:
    experts = grouped_experts(h, Gating.SIGMOID)
    return latent_network(h, experts, h.indexers(RopeLayout.INTERLEAVED))
