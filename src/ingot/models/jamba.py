"""Jamba: Mamba with norms of its parts in most layers, attention without positions in some; experts
in every other layer."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import CONVOLUTION, DECAY
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    first, every = s.integer("attn_layer_offset"), s.positive("attn_layer_period")
    return {
        "attention.head_count_kv": [
            s.kv_heads if layer % every == first else 0 for layer in range(s.layers)
        ],
        "ssm.conv_kernel": s.integer("mamba_d_conv"),
        "ssm.inner_size": s.integer("mamba_expand") * s.width,
        "ssm.state_size": s.integer("mamba_d_state"),
        "ssm.time_step_rank": s.integer("mamba_dt_rank"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("JambaForCausalLM",),
        names={
            "pre_ff_layernorm": "ffn_norm",
            "feed_forward.router": "ffn_gate_inp",
            "feed_forward.experts.{}.gate_proj": "ffn_gate_exps",
            "feed_forward.experts.{}.up_proj": "ffn_up_exps",
            "feed_forward.experts.{}.down_proj": "ffn_down_exps",
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
            "mamba.in_proj": "ssm_in",
            "mamba.conv1d": "ssm_conv1d",
            "mamba.x_proj": "ssm_x",
            "mamba.dt_proj": "ssm_dt",
            "mamba.dt_layernorm": "ssm_dt_norm",
            "mamba.b_layernorm": "ssm_b_norm",
            "mamba.c_layernorm": "ssm_c_norm",
            "mamba.A_log": "ssm_a",
            "mamba.D": "ssm_d",
            "mamba.out_proj": "ssm_out",
        },
        outer={"model.final_layernorm": "output_norm"},
        values=DECAY,
        shapes=CONVOLUTION,
        keys=_keys,
    ),
)


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
