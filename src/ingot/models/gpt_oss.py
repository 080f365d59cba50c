"""gpt-oss: experts with biases and a clamped gate, attention with sinks and biases, a sliding
window in every other layer, YaRN."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT, yarn_in_whole_pairs=False)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.CLAMPED_SWIGLU,
        gating=Gating.CHOSEN_SOFTMAX,
        bias=True,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=True,
                output_bias=True,
                window=0 if index % 2 else h.window(),
                sinks=True,
            ),
            attention_norm=norm("attn_norm"),
            mlp=experts,
            mlp_norm=norm("post_attention_norm"),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
