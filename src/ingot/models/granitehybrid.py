"""Granite 4 (hybrid), Bamba: Mamba 2 in most layers and attention in some, with or without RoPE;
Granite's multipliers; a feed-forward network, or experts with a shared one."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint, Place, Value
from ingot.models.checkpoint_parts import FUSED_EXPERTS, layer_kinds, multiplier_keys, shared_mlp
from ingot.models.checkpoint_states import (
    DECAY,
    attends_everywhere,
    hybrid_kv_heads,
    mamba2_keys,
    mamba2_names,
    mamba2_shapes,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
)

_ATTENTION_AND_STATES: Mapping[str, Place] = {**INTERLEAVED, **mamba2_names("mamba.")}


def _experts(s: Settings) -> int:
    return s.integer("num_local_experts", default=0)


def _keys(s: Settings) -> Mapping[str, Value]:
    kinds = layer_kinds(s, "layer_types", "layers_block_type")
    shared = s.integer("shared_intermediate_size", default=0)
    return {
        **multiplier_keys(s),
        **mamba2_keys(s, s.integer("mamba_expand") * s.width),
        "attention.head_count_kv": hybrid_kv_heads(s, kinds),
        "rope.scaling.finetuned": s.find("position_embedding_type") == "rope",
        "feed_forward_length": s.integer("intermediate_size") if _experts(s) else shared,
        "expert_count": _experts(s),
        "expert_used_count": s.integer("num_experts_per_tok") if _experts(s) else None,
        "expert_shared_feed_forward_length": (shared or None) if _experts(s) else None,
    }


CHECKPOINTS = (
    Checkpoint(
        models=("GraniteMoeHybridForCausalLM",),
        accepts=lambda s: not attends_everywhere(s) and _experts(s) > 0,
        names={**_ATTENTION_AND_STATES, **FUSED_EXPERTS},
        values=DECAY,
        shapes=mamba2_shapes("mamba_n_groups"),
        keys=_keys,
    ),
    Checkpoint(
        models=("GraniteMoeHybridForCausalLM",),
        accepts=lambda s: not attends_everywhere(s) and _experts(s) == 0,
        names={**_ATTENTION_AND_STATES, **shared_mlp("ffn_gate", "ffn_up", "ffn_down")},
        values=DECAY,
        shapes=mamba2_shapes("mamba_n_groups"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        turned = h.boolean("rope.scaling.finetuned", True)
        return AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=h.rope(RopeLayout.INTERLEAVED) if turned else None,
            scale=h.number("attention.scale", h.head_size**-0.5),
        )

    def experts() -> ExpertsSpec:
        shared = h.count("expert_shared_feed_forward_length")
        return ExpertsSpec(
            count=h.experts,
            used=h.experts_used,
            width=h.size("feed_forward_length"),
            activation=Activation.SILU,
            gating=Gating.CHOSEN_SOFTMAX,
            shared=SharedExpertSpec(width=shared) if shared else None,
        )

    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    states = h.mamba2(norm("ssm_norm"))
    layers = [
        LayerSpec(
            attention=attention(kv_heads) if kv_heads else states,
            attention_norm=norm("attn_norm"),
            mlp=experts() if h.count("expert_count") else dense,
            mlp_norm=norm("ffn_norm"),
            residual_scale=h.number("residual_scale", 1.0),
        )
        for kv_heads in h.hybrid_kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.number("embedding_scale", 1.0),
        logit_scale=1 / h.positive("logit_scale", 1.0),
    )
