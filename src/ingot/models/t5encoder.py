"""The encoder of T5 models alone: bidirectional attention, relative position buckets, RMS norms,
GELU with a gate or ReLU without."""

from dataclasses import replace

from ingot.models.checkpoint import Checkpoint
from ingot.models.checkpoint_relative import (
    COPIES,
    DEFAULTS,
    ENCODER,
    OUTER,
    can_be_stated,
    relative_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import relative_encoder
from ingot.models.spec import Network

CHECKPOINTS = (
    Checkpoint(
        models=("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel"),
        accepts=can_be_stated,
        layers="encoder.block",
        file_layers="enc.blk",
        names=ENCODER,
        outer=OUTER,
        ignored=COPIES,
        keys=relative_keys,
        defaults=DEFAULTS,
    ),
)


def network(h: Hyperparameters) -> Network:
    # Some files hold the output matrix of the decoder that they lack.
    return replace(relative_encoder(h, h.context_length), unread=("output.weight",))
