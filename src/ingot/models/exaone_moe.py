"""K-EXAONE (EXAONE MoE): norms of each query and key head, three of four layers with a sliding
window and half-split RoPE, the others without RoPE; sigmoid experts with a selection bias, shared
experts, first layers dense."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import layer_kinds
from ingot.models.checkpoint_states import APART_MTP
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 4  # layers, if a file does not list them
_SIGMOID = 2  # a file's number of this gating


def _keys(s: Settings) -> Mapping[str, Value]:
    dense = s.integer("first_k_dense_replace", "first_last_k_dense_replace", default=0)
    if s.find("mlp_layer_types") is not None:
        kinds = layer_kinds(s, "mlp_layer_types")
        dense = kinds.index("sparse") if "sparse" in kinds else s.layers
    shared = s.integer("num_shared_experts", default=0)
    return {
        "attention.sliding_window": s.positive("sliding_window"),
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in layer_kinds(s, "layer_types")
        ],
        "expert_shared_count": shared,
        "expert_shared_feed_forward_length": shared * s.integer("moe_intermediate_size"),
        "leading_dense_block_count": dense,
        "expert_gating_func": _SIGMOID,
        "expert_weights_norm": s.boolean("norm_topk_prob", True),
        "expert_weights_scale": s.number("routed_scaling_factor", default=1.0),
        "expert_group_count": s.find("n_group"),
        "expert_group_used_count": s.find("topk_group"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"),
        mtp_layers="mtp.layers",
        names={"mlp.e_score_correction_bias": "exp_probs_b.bias", **APART_MTP},
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    windows = h.window_layers(_FULL_EVERY)
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=h.boolean("expert_weights_norm", False),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=h.has_tensor(f"blk.{h.dense_layers}.exp_probs_b.bias"),
        groups=h.expert_groups(best=2),
        shared=h.shared_expert(),
    )
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        # Layers for multi-token prediction are dense, and begin the order of windows again.
        sparse = h.dense_layers <= index < h.own_layers
        window = windows[index % h.own_layers]
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=rope if window else None,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            window=h.window() if window else 0,
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                mlp=experts if sparse else dense,
                mlp_norm=norm("ffn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers[: h.own_layers],
        output_norm=norm("output_norm"),
        mtp=layers[h.own_layers :],
    )
