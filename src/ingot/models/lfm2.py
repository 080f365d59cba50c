"""LFM2: short convolutions between two gates, and in some layers attention with norms of each query
and key head, half-split RoPE."""

from collections.abc import Mapping

from ingot.graph.ops import Activation
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import (
    SHORT_CONVOLUTION,
    SHORT_CONVOLUTIONS,
    short_convolution_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import short_conv_network
from ingot.models.settings import Settings
from ingot.models.spec import MlpSpec, Network


def _feed_forward(s: Settings) -> int:
    """The width that the network has: two thirds of the stated one, rounded up, in most files."""
    width = s.positive("block_ff_dim", "intermediate_size")
    if s.boolean("block_auto_adjust_ff_dim", True):
        width = int(s.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        multiple = s.positive("block_multiple_of", default=256)
        width = -(-width // multiple) * multiple
    return width


def _keys(s: Settings) -> Mapping[str, Value]:
    return {**short_convolution_keys(s), "feed_forward_length": _feed_forward(s)}


CHECKPOINTS = (
    Checkpoint(
        models=("Lfm2ForCausalLM",),
        names=SHORT_CONVOLUTIONS,
        outer={"model.embedding_norm": "token_embd_norm"},
        shapes=SHORT_CONVOLUTION,
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    return short_conv_network(h, [mlp] * h.layers)
