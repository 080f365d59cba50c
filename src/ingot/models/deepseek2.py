"""DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash: multi-head latent attention with interleaved
RoPE, experts in groups, shared experts, first layers dense."""

from ingot.graph.ops import Activation, Gating
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

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
            attention=h.latents(),
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
