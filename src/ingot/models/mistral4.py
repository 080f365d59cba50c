"""Mistral Small 4: multi-head latent attention with interleaved RoPE, queries scaled by their
positions after the original context; softmax experts with weights that add up to one, shared
experts."""

from ingot.graph.ops import Activation, Gating
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SOFTMAX),
        normalize=h.boolean("expert_weights_norm", True),
        scale=h.positive("expert_weights_scale", 1.0),
        groups=h.expert_groups(best=2),
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
