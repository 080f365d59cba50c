"""Ling 2 and Ring 2: query, key and value in one tensor, norms of each query and key head,
half-split RoPE on part of it, sigmoid experts in groups with a selection bias, shared experts,
first layers dense."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)

_SIGMOID = 2  # a file's number of this gating


def _keys(s: Settings) -> Mapping[str, Value]:
    width = s.integer("moe_intermediate_size")
    return {
        "expert_shared_count": s.integer("num_shared_experts", default=0),
        "expert_shared_feed_forward_length": s.integer(
            "moe_shared_expert_intermediate_size", default=width
        ),
        "leading_dense_block_count": s.integer("first_k_dense_replace", default=0),
        "expert_gating_func": _SIGMOID,
        "expert_weights_norm": s.boolean("norm_topk_prob", True),
        "expert_weights_scale": s.number("routed_scaling_factor", default=1.0),
        "expert_group_count": s.find("n_group"),
        "expert_group_used_count": s.find("topk_group"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("BailingMoeV2ForCausalLM",),
        names={
            "attention.query_key_value": "attn_qkv",
            "attention.query_layernorm": "attn_q_norm",
            "attention.key_layernorm": "attn_k_norm",
            "attention.dense": "attn_output",
            "mlp.gate.expert_bias": "exp_probs_b.bias",
            "final_layernorm": "nextn.shared_head_norm",
        },
        outer={"model.word_embeddings": "token_embd"},
        keys=_keys,
        defaults={"partial_rotary_factor": 0.5},
    ),
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
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers[: h.own_layers],
        output_norm=norm("output_norm"),
        mtp=layers[h.own_layers :],
    )
