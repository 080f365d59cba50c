"""Apertus: xIELU without a gate, norms of each query and key head, half-split RoPE."""

import math

from ingot.graph.ops import RopeLayout
from ingot.models.checkpoint import Checkpoint, Number
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec, XieluSpec

CHECKPOINTS = (
    Checkpoint(
        models=("ApertusForCausalLM",),
        names={
            "attention_layernorm": "attn_norm",
            "feedforward_layernorm": "ffn_norm",
            **{
                f"mlp.act_fn.{name}": Number(f"xielu.{name}")
                for name in ("alpha_p", "alpha_n", "beta", "eps")
            },
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def softplus(x: float) -> float:
        return max(x, 0.0) + math.log1p(math.exp(-abs(x)))

    rope = h.rope(RopeLayout.HALF_SPLIT)
    above, below, slopes = (
        h.numbers_per_layer(f"xielu.{name}") for name in ("alpha_p", "alpha_n", "beta")
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                query_norm=norm("attn_q_norm"),
                key_norm=norm("attn_k_norm"),
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=XieluSpec(rise=softplus(rise), fall=slope + softplus(fall), slope=slope),
                gated=False,
            ),
            mlp_norm=norm("ffn_norm"),
        )
        for kv_heads, rise, fall, slope in zip(h.kv_heads, above, below, slopes, strict=True)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
