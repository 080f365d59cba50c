"""EmbeddingGemma (encoder): bidirectional attention, over a window in five of six layers; pre-norms
and post-norms, norms of query and key, a scaled embedding."""

from ingot.models.checkpoint import ONE_MORE, PRE_AND_POST_NORMS, Checkpoint, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import window_network
from ingot.models.spec import Network

CHECKPOINTS = (
    Checkpoint(
        models=("Gemma3TextModel",),
        layers="layers",
        names=PRE_AND_POST_NORMS,
        outer={"embed_tokens": "token_embd", "norm": "output_norm"},
        values=ONE_MORE,
        keys=window_key,
    ),
)


def network(h: Hyperparameters) -> Network:
    return window_network(h, causal=False)
