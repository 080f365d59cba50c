"""Qwen3-Next: the gated delta rule in three of four layers, in the others attention with a gate,
norms of each head and half-split RoPE on part of it; softmax experts and a gated shared one."""

from collections.abc import Sequence

import numpy as np

from ingot.models.checkpoint import ONE_MORE, Checkpoint, Order, Rows
from ingot.models.checkpoint_states import CONVOLUTION, DECAY, DELTA, delta_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import delta_network, experts_and_gated_one
from ingot.models.settings import Settings
from ingot.models.spec import Network


def _by_kind(rows: int, s: Settings) -> Sequence[Order]:
    """Queries, keys and values of all heads, then their gates; stored one key head after the other.

    A key head has its query and key, then the values and gates of its value heads.
    """
    heads, values = s.positive("linear_num_key_heads"), s.positive("linear_num_value_heads")
    key = s.positive("linear_key_head_dim")
    value = s.positive("linear_value_head_dim") * (values // heads)
    parts = np.split(np.arange(rows).reshape(heads, -1), [key, 2 * key, 2 * key + value], axis=1)
    query, keys, found, gates = (part.reshape(-1) for part in parts)
    return np.concatenate([query, keys, found]), gates


CHECKPOINTS = (
    Checkpoint(
        models=("Qwen3NextForCausalLM",),
        names={
            **DELTA,
            "linear_attn.in_proj_qkvz": Rows(("attn_qkv", "attn_gate"), _by_kind),
            "linear_attn.in_proj_ba": "ssm_ba",
        },
        values={**DECAY, "ssm_norm.weight": lambda w: w, **ONE_MORE},
        shapes=CONVOLUTION,
        keys=delta_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    delta = h.delta(mixed_rates=True, mixed_inputs=h.has_tensor("blk.0.ssm_in.weight"))
    return delta_network(h, delta, experts_and_gated_one(h))
