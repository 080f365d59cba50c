"""Ling 2 and Ring 2: query, key and value in one tensor, norms of each query and key head,
half-split RoPE on part of it, sigmoid experts in groups with a selection bias, shared experts,
first layers dense."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    width = h.size("expert_feed_forward_length")
    shared = h.size("expert_shared_count") * h.size("expert_shared_feed_forward_length", width)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=width,
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=h.boolean("expert_weights_norm", False),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=h.has_tensor(f"blk.{h.dense_layers}.exp_probs_b.bias"),
        groups=h.expert_groups(best=2),
        shared=SharedExpertSpec(width=shared),
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                query_norm=norm("attn_q_norm"),
                key_norm=norm("attn_k_norm"),
            ),
            attention_norm=norm("attn_norm"),
            mlp=dense if index < h.dense_layers else experts,
            mlp_norm=norm("ffn_norm"),
        )
        for index, kv_heads in enumerate(h.kv_heads[: h.layers - h.mtp_layers])
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        mtp_layers=h.mtp_layers,
    )
