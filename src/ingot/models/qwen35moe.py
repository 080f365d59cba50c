"""Qwen 3.5 and 3.6 MoE: the gated delta rule in three of four layers, in the others attention with
a gate, norms of each head and half-split RoPE on part of it; softmax experts and a gated shared
one."""

from ingot.models.checkpoint_states import tiled_delta_checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import delta_network, experts_and_gated_one
from ingot.models.spec import Network

CHECKPOINTS = (
    tiled_delta_checkpoint("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
)


def network(h: Hyperparameters) -> Network:
    return delta_network(h, h.delta(tiled=True), experts_and_gated_one(h))
