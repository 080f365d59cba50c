"""SmallThinker: experts with ReLU gates, chosen by the stream before attention; in the larger model
three of four layers have a sliding window and half-split RoPE, the others neither."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormSpec

_FULL_EVERY = 4  # layers, the first of which sees everything; only with windows
_SOFTMAX, _SIGMOID = 1, 2  # a file's numbers of gatings


def _with_windows(s: Settings) -> bool:
    layout = s.find("sliding_window_layout")
    return isinstance(layout, list) and any(layout)


def _fits(s: Settings) -> bool:
    """Whether a file means this order of layers, and these experts."""
    ordered = [int(_with_windows(s) and layer % _FULL_EVERY != 0) for layer in range(s.layers)]
    rotary = ordered if _with_windows(s) else [1] * s.layers
    return (
        s.find("sliding_window_layout") in (None, ordered)
        and s.find("rope_layout") in (None, rotary)
        and s.boolean("moe_enable_early_router", True)
        and not s.boolean("moe_enable_secondary_experts", False)
        and (
            s.boolean("moe_primary_router_apply_softmax", False)
            or s.boolean("norm_topk_prob", True)
        )
    )


def _keys(s: Settings) -> Mapping[str, Value]:
    softmax = s.boolean("moe_primary_router_apply_softmax", False)
    width = s.positive("moe_ffn_hidden_size")
    return {
        "feed_forward_length": width,
        "expert_feed_forward_length": width,
        "expert_count": s.positive("moe_num_primary_experts"),
        "expert_used_count": s.positive("moe_num_active_primary_experts"),
        "expert_gating_func": _SOFTMAX if softmax else _SIGMOID,
        "attention.sliding_window": (
            s.positive("sliding_window_size") if _with_windows(s) else None
        ),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("SmallThinkerForCausalLM",),
        accepts=_fits,
        names={
            "block_sparse_moe.primary_router": "ffn_gate_inp",
            "block_sparse_moe.experts.{}.gate": "ffn_gate_exps",
            "block_sparse_moe.experts.{}.up": "ffn_up_exps",
            "block_sparse_moe.experts.{}.down": "ffn_down_exps",
        },
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    with_windows = h.integer("attention.sliding_window", 0) > 0
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length", h.size("feed_forward_length")),
        activation=Activation.RELU,
        gating=h.gating(Gating.SIGMOID),
        normalize=True,
        early=True,
    )
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = with_windows and index % _FULL_EVERY == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None if full else rope,
            window=0 if full else h.window(),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                mlp=experts,
                mlp_norm=norm("ffn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
