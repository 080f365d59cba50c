"""LFM2 MoE: short convolutions between two gates, in some layers attention with norms of each query
and key head, half-split RoPE; sigmoid experts with a selection bias, first layers dense."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import (
    SHORT_CONVOLUTION,
    SHORT_CONVOLUTIONS,
    short_convolution_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import short_conv_network
from ingot.models.settings import Settings
from ingot.models.spec import ExpertsSpec, MlpSpec, Network


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **short_convolution_keys(s),
        "leading_dense_block_count": s.integer("num_dense_layers", default=0),
        "expert_gating_func": 2,
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Lfm2MoeForCausalLM",),
        names={
            **SHORT_CONVOLUTIONS,
            "feed_forward.gate": "ffn_gate_inp",
            "feed_forward.expert_bias": "exp_probs_b.bias",
            "feed_forward.experts.{}.w1": "ffn_gate_exps",
            "feed_forward.experts.{}.w2": "ffn_down_exps",
            "feed_forward.experts.{}.w3": "ffn_up_exps",
        },
        outer={"model.embedding_norm": "token_embd_norm"},
        shapes=SHORT_CONVOLUTION,
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=True,
        selection_bias=True,
    )
    mlps = [dense if index < h.dense_layers else experts for index in range(h.layers)]
    return short_conv_network(h, mlps)
