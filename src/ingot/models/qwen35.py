"""Qwen 3.5 and 3.6: the gated delta rule in three of four layers, in the others attention with a
gate, norms of each head and half-split RoPE on part of it."""

from ingot.graph.ops import Activation
from ingot.models.checkpoint_states import tiled_delta_checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import delta_network
from ingot.models.spec import MlpSpec, Network

CHECKPOINTS = (tiled_delta_checkpoint("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),)


def network(h: Hyperparameters) -> Network:
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    return delta_network(h, h.delta(tiled=True), mlp)
