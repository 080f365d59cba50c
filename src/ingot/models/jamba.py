"""Jamba: Mamba with norms of its parts in most layers, attention without positions in some; experts
in every other layer."""

from ingot.graph.ops import Activation, Gating
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        return AttentionSpec(heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=None)

    width = h.size("feed_forward_length")
    dense = MlpSpec(width=width, activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=width,
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
    )
    states = h.mamba((norm("ssm_dt_norm"), norm("ssm_b_norm"), norm("ssm_c_norm")))
    layers = [
        LayerSpec(
            attention=attention(kv_heads) if kv_heads else states,
            attention_norm=norm("attn_norm"),
            mlp=experts if h.has_tensor(f"blk.{index}.ffn_gate_inp.weight") else dense,
            mlp_norm=norm("ffn_norm"),
        )
        for index, kv_heads in enumerate(h.hybrid_kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
