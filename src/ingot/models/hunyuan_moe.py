"""Hunyuan A13B: norms of each query and key head after half-split RoPE, softmax experts whose
weights add up to one, a shared expert in every layer."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
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
    used = s.find("moe_topk")
    return {
        "expert_used_count": used[0] if isinstance(used, list) else s.integer("moe_topk"),
        "expert_feed_forward_length": s.integer("intermediate_size"),
        "expert_shared_feed_forward_length": s.integer("intermediate_size"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("HunYuanMoEV1ForCausalLM",),
        names={
            "self_attn.query_layernorm": "attn_q_norm",
            "self_attn.key_layernorm": "attn_k_norm",
            "mlp.gate.wg": "ffn_gate_inp",
            "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
            "mlp.shared_mlp.up_proj": "ffn_up_shexp",
            "mlp.shared_mlp.down_proj": "ffn_down_shexp",
        },
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length", h.size("feed_forward_length")),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        normalize=True,
        shared=SharedExpertSpec(width=h.size("expert_shared_feed_forward_length")),
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
                norms_last=True,
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
