"""Gemma 3 (text): pre-norms and post-norms, norms of query and key, a scaled embedding, five layers
with a sliding window for each layer without one."""

from collections.abc import Mapping

from ingot.models.checkpoint import ONE_MORE, PRE_AND_POST_NORMS, Checkpoint, Value, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import window_network
from ingot.models.settings import Settings
from ingot.models.spec import Network

_QUERY_SCALED_LAYERS = 62  # the 27B model scales by width / heads instead of the head size


# Those of the 4B model; its file states only where it differs from them.
_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "vocab_size": 262208,
}


def _keys(s: Settings) -> Mapping[str, Value]:
    return {**window_key(s), "final_logit_softcapping": s.find("final_logit_softcapping")}


CHECKPOINTS = (
    Checkpoint(
        models=(
            "Gemma3ForCausalLM",
            "Gemma3ForConditionalGeneration",
        ),
        names=PRE_AND_POST_NORMS,
        values=ONE_MORE,
        keys=_keys,
        defaults=_DEFAULTS,
    ),
)


def network(h: Hyperparameters) -> Network:
    scale = (h.width / h.heads) ** -0.5 if h.layers == _QUERY_SCALED_LAYERS else None
    return window_network(h, scale=scale, logit_softcap=h.number("final_logit_softcapping", 0.0))
