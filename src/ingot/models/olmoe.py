"""OLMoE: norms over all heads of query and key, experts weighted by the softmax over all
experts."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormOver, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("OlmoeForCausalLM",),
        accepts=lambda s: not s.boolean("norm_topk_prob", False),  # the weights that files mean
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
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
                norm_over=NormOver.ROW,
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
