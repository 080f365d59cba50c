"""DeepSeek V3.2: DeepSeek V3 with sparse attention, for which an indexer with half-split RoPE
chooses positions."""

from ingot.graph.ops import Gating, RopeLayout
from ingot.models.checkpoint_parts import indexed_checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import grouped_experts, latent_network
from ingot.models.spec import Network

CHECKPOINTS = (indexed_checkpoint("DeepseekV32ForCausalLM"),)


def network(h: Hyperparameters) -> Network:
    experts = grouped_experts(h, Gating.SIGMOID)
    return latent_network(h, experts, h.indexers(RopeLayout.HALF_SPLIT))
