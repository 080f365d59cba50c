"""Trinity (AFMoE): a sigmoid gate on attention, norms before and after each block and of each head,
three of four layers with a sliding window, the others without RoPE; sigmoid experts with a
selection bias, shared experts, first layers dense."""

import math

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

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
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        whole = index % 4 == 3  # sees all tokens
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None if whole else rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            window=0 if whole else h.window(),
            gated=True,
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                attention_post_norm=norm("post_attention_norm"),
                mlp=dense if index < h.dense_layers else experts,
                mlp_norm=norm("ffn_norm"),
                mlp_post_norm=norm("post_ffw_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=math.sqrt(h.width),
    )
