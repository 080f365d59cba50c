"""Falcon-H1: Mamba 2 and attention side by side in every layer, half-split RoPE."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ingot.arrays import Floats
from ingot.errors import ConversionError
from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import DECAY, mamba2_keys, mamba2_names, mamba2_shapes
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def _multiplied(*names: str) -> Callable[[int, Settings], Floats]:
    """Every row by the product of these settings."""
    return lambda rows, s: np.full(rows, np.prod([s.number(name) for name in names]), np.float32)


def _mlp_multiplied(number: int) -> Callable[[int, Settings], Floats]:
    return lambda rows, s: np.full(rows, s.numbers("mlp_multipliers")[number], np.float32)


def _parts_multiplied(rows: int, s: Settings) -> Floats:
    """Gates, inputs, both kinds of weights and time steps, each by a number of its own."""
    width, states = (
        s.integer("mamba_d_ssm"),
        s.integer("mamba_n_groups") * s.integer("mamba_d_state"),
    )
    sizes = [width, width, states, states]
    factors = np.repeat(s.numbers("ssm_multipliers"), [*sizes, rows - sum(sizes)])
    return (factors * s.number("ssm_in_multiplier")).astype(np.float32)


def _keys(s: Settings) -> Mapping[str, Value]:
    names = ("embedding_multiplier", "lm_head_multiplier")
    embedding, output = (s.number(name) for name in names)
    if s.boolean("tie_word_embeddings", False) and embedding != output:
        raise ConversionError(
            f"config.json: {' and '.join(names)} differ, but the embedding is the output matrix too"
        )
    return mamba2_keys(s, s.integer("mamba_d_ssm"))


CHECKPOINTS = (
    Checkpoint(
        models=("FalconH1ForCausalLM",),
        names={
            **mamba2_names("mamba."),
            "pre_ff_layernorm.weight": "ffn_norm",  # as files have it
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
        },
        outer={"model.final_layernorm": "output_norm"},
        values=DECAY,
        factors={
            "attn_q.weight": _multiplied("attention_in_multiplier"),
            "attn_k.weight": _multiplied("attention_in_multiplier", "key_multiplier"),
            "attn_v.weight": _multiplied("attention_in_multiplier"),
            "attn_output.weight": _multiplied("attention_out_multiplier"),
            "ssm_in.weight": _parts_multiplied,
            "ssm_out.weight": _multiplied("ssm_out_multiplier"),
            "ffn_gate.weight": _mlp_multiplied(0),
            "ffn_down.weight": _mlp_multiplied(1),
            "token_embd.weight": _multiplied("embedding_multiplier"),
            "output.weight": _multiplied("lm_head_multiplier"),
        },
        shapes=mamba2_shapes("mamba_n_groups"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    states = h.mamba2(norm("ssm_norm") if h.has_tensor("blk.0.ssm_norm.weight") else None)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            beside=states,
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=replace(norm("ffn_norm"), plain_name=True),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
