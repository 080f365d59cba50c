"""ERNIE 4.5 MoE: interleaved RoPE, softmax experts with a selection bias whose weights add up to
one, shared experts, first layers dense, in some models every other layer too."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    shared, width = (
        s.integer("moe_num_shared_experts", default=0),
        s.integer("moe_intermediate_size"),
    )
    return {
        "expert_shared_count": shared,
        "expert_shared_feed_forward_length": shared * width or None,
        "leading_dense_block_count": s.integer("moe_layer_start_index", default=0),
        "interleave_moe_layer_step": s.integer("moe_layer_interval", default=1),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Ernie4_5_MoeForCausalLM",),
        names={"mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias"},
        shapes={"exp_probs_b.bias": lambda shape, _: shape[-1:]},
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    step = h.size("interleave_moe_layer_step", 1)
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SOFTMAX),
        normalize=True,
        selection_bias=True,
        shared=h.shared_expert(),
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=dense if index < h.dense_layers or (index + 1) % step else experts,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
