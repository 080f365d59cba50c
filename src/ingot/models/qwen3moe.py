"""Qwen 3 MoE (30B-A3B, 235B-A22B): norms of each query and key head, experts whose weights add up
to one."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.checkpoint_parts import has_no_window
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("Qwen3MoeForCausalLM",),
        # The weights of experts that files mean.
        accepts=lambda s: s.boolean("norm_topk_prob", False) and has_no_window(s),
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    dense = h.size("feed_forward_length")
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length", max(1, dense // h.experts_used)),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        normalize=True,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                query_norm=norm("attn_q_norm"),
                key_norm=norm("attn_k_norm"),
            ),
            attention_norm=norm("attn_norm"),
            mlp=experts,
            mlp_norm=norm("ffn_norm"),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
