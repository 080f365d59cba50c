"""Granite MoE: Granite's multipliers, experts weighted by a softmax over the chosen ones, and in
some models a shared expert."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint, Value
from ingot.models.checkpoint_parts import FUSED_EXPERTS, multiplier_keys
from ingot.models.checkpoint_states import attends_everywhere
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **multiplier_keys(s),
        "expert_shared_feed_forward_length": s.find("shared_intermediate_size"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=(
            "GraniteMoeForCausalLM",
            "GraniteMoeSharedForCausalLM",
        ),
        names={**INTERLEAVED, **FUSED_EXPERTS},
        keys=_keys,
    ),
    Checkpoint(
        models=("GraniteMoeHybridForCausalLM",),
        accepts=lambda s: attends_everywhere(s) and s.integer("num_local_experts", default=0) > 0,
        names={**INTERLEAVED, **FUSED_EXPERTS},
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    shared = None
    if h.integer("expert_shared_feed_forward_length", 0):
        shared = SharedExpertSpec(width=h.size("expert_shared_feed_forward_length"))
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.CHOSEN_SOFTMAX,
        shared=shared,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                scale=h.number("attention.scale", h.head_size**-0.5),
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=experts,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
            residual_scale=h.number("residual_scale", 1.0),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
        embedding_scale=h.number("embedding_scale", 1.0),
        logit_scale=1 / h.positive("logit_scale", 1.0),
    )
