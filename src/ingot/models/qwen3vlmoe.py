"""Qwen 3 VL MoE (text): norms of each query and key head, half-split RoPE, softmax experts whose
weights add up to one."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.checkpoint_parts import axes_key, deepstack_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormSpec

_SECTIONS = (24, 20, 20)

CHECKPOINTS = (
    Checkpoint(
        models=("Qwen3VLMoeForConditionalGeneration",),
        # What its makers stored has inputs before outputs; `transformers` saves it the other way.
        inputs={
            "mlp.experts.gate_up_proj": lambda s: s.width,
            "mlp.experts.down_proj": lambda s: s.positive("moe_intermediate_size"),
        },
        own_output=lambda _: True,  # `transformers` says that its text part is tied; it is not
        keys=lambda s: {**axes_key(s, _SECTIONS), **deepstack_key(s)},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    dense = h.integer("feed_forward_length", 0)
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
