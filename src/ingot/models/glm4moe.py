"""GLM 4.5, 4.6 and 4.7: sigmoid experts with a selection bias, shared experts, first layers dense,
half-split RoPE on half of each head, in the larger model norms of each query and key head."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        "expert_shared_count": s.integer("n_shared_experts", default=0),
        "leading_dense_block_count": s.integer("first_k_dense_replace", default=0),
        "expert_gating_func": 2,
        "expert_weights_norm": s.boolean("norm_topk_prob", True),
        "expert_weights_scale": s.number("routed_scaling_factor", default=1.0),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Glm4MoeForCausalLM",),
        names={"post_attention_layernorm": "post_attention_norm"},
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def head_norm(name: str) -> NormSpec | None:
        return norm(name) if h.has_tensor(f"blk.0.{name}.weight") else None

    rope = h.rope(RopeLayout.HALF_SPLIT)
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=h.boolean("expert_weights_norm", True),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=True,
        shared=h.shared_expert(),
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=h.has_tensor("blk.0.attn_q.bias"),
                query_norm=head_norm("attn_q_norm"),
                key_norm=head_norm("attn_k_norm"),
            ),
            attention_norm=norm("attn_norm"),
            mlp=dense if index < h.dense_layers else experts,
            mlp_norm=norm("post_attention_norm"),
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
