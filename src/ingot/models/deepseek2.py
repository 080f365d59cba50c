"""DeepSeek V2, V3 and R1, Kimi K2: multi-head latent attention with interleaved RoPE, experts in
groups, shared experts, first layers dense."""

import math
from dataclasses import replace

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import ExpertsSpec, LatentSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    latent = h.size("attention.kv_lora_rank")
    fused = not h.integer("attention.key_length_mla", 0)  # as older converters left it
    kind = "" if fused else "_mla"
    head = h.size(f"attention.key_length{kind}")
    rotary = h.size("rope.dimension_count", most=head - 1)
    # YaRN stretches the scores of attention instead of cosines and sines.
    rope, stretch = h.rope(RopeLayout.INTERLEAVED), 1.0
    if multiplier := h.not_negative("rope.scaling.yarn_log_multiplier"):
        stretch += multiplier * math.log(max(1.0, h.positive("rope.scaling.factor", 1.0)))
        rope = replace(rope, magnitude=1.0)
    attention = LatentSpec(
        heads=h.heads,
        latent=latent,
        rotary=rotary,
        key_size=head - rotary,
        value_size=h.size(f"attention.value_length{kind}"),
        rope=rope,
        scale=stretch**2 / math.sqrt(head),
        latent_norm=norm("attn_kv_a_norm"),
        query_rank=h.count("attention.q_lora_rank"),
        query_norm=norm("attn_q_a_norm"),
        fused=fused,
    )
    gating = h.gating(Gating.SOFTMAX)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=gating,
        normalize=h.boolean("expert_weights_norm", False),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=h.has_tensor(f"blk.{h.dense_layers}.exp_probs_b.bias"),
        groups=h.expert_groups(best=2 if gating is Gating.SIGMOID else 1),
        shared=h.shared_expert(),
    )
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=attention,
            attention_norm=norm("attn_norm"),
            mlp=dense if index < h.dense_layers else experts,
            mlp_norm=norm("ffn_norm"),
        )
        for index in range(h.layers - h.mtp_layers)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        mtp_layers=h.mtp_layers,
    )
