"""Qwen 1.5 and 2 MoE: Qwen 2 with experts weighted by the softmax over all experts, and a gated
shared expert."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.checkpoint_parts import has_no_window
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)

CHECKPOINTS = (
    Checkpoint(
        models=("Qwen2MoeForCausalLM",),
        # The weights of experts that files mean.
        accepts=lambda s: not s.boolean("norm_topk_prob", False) and has_no_window(s),
        keys=lambda s: {
            "expert_shared_feed_forward_length": s.integer("shared_expert_intermediate_size")
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    dense = h.size("feed_forward_length")
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length", max(1, dense // h.experts_used)),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        shared=SharedExpertSpec(
            width=h.size("expert_shared_feed_forward_length", dense), gated=True
        ),
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope, qkv_bias=True
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=experts,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
