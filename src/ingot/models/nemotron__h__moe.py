"""Nemotron 3 Nano: each layer is Mamba 2, attention without positions, or sigmoid experts with a
selection bias, a squared ReLU, no gates, and a shared expert."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import (
    BACKBONE,
    DECAY,
    SINGLE_BLOCKS,
    block_kinds,
    mamba2_shapes,
    single_block_keys,
)
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

_SIGMOID = 2  # a file's number of this gating


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **single_block_keys(s, ("moe", "E"), s.integer("moe_intermediate_size")),
        "expert_shared_feed_forward_length": s.integer("moe_shared_expert_intermediate_size"),
        "expert_shared_count": s.integer("n_shared_experts"),
        "expert_gating_func": _SIGMOID,
        "expert_weights_norm": s.boolean("norm_topk_prob", True),
        "expert_weights_scale": s.number("routed_scaling_factor", default=1.0),
        "expert_group_count": s.integer("n_group", default=1),
        "expert_group_used_count": s.integer("topk_group", default=1),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("NemotronHForCausalLM",),
        accepts=lambda s: any(kind in ("moe", "E") for kind in block_kinds(s)),
        layers="backbone.layers",
        names={
            **SINGLE_BLOCKS,
            "mixer.gate": "ffn_gate_inp",
            "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
            "mixer.experts.{}.up_proj": "ffn_up_exps",
            "mixer.experts.{}.down_proj": "ffn_down_exps",
            "mixer.shared_experts.up_proj": "ffn_up_shexp",
            "mixer.shared_experts.down_proj": "ffn_down_shexp",
        },
        outer=BACKBONE,
        values=DECAY,
        shapes=mamba2_shapes("n_groups"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        return AttentionSpec(heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=None)

    shared = h.count("expert_shared_feed_forward_length")
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.RELU_SQUARED,
        gating=h.gating(Gating.SIGMOID),
        gated=False,
        normalize=h.boolean("expert_weights_norm", True),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=True,
        groups=h.expert_groups(best=2),
        shared=SharedExpertSpec(width=shared) if shared else None,
    )

    states = h.mamba2(norm("ssm_norm"))
    layers = []
    for kv_heads, width in zip(
        h.hybrid_kv_heads, h.per_layer("feed_forward_length", least=0), strict=True
    ):
        mixer = attention(kv_heads) if kv_heads else None if width else states
        layers.append(
            LayerSpec(
                attention=mixer,
                attention_norm=norm("attn_norm") if mixer else None,
                mlp=None if mixer else experts,
                mlp_norm=None if mixer else norm("attn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
