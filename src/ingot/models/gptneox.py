"""GPT-NeoX, Pythia: layer norms, RoPE on part of each head, biases, parallel attention and
feed-forward network, each with its own norm."""

from collections.abc import Mapping

import numpy as np

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value, grouped, in_order
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    keys: dict[str, Value] = {"use_parallel_residual": s.boolean("use_parallel_residual", True)}
    if s.find("rope_parameters") is None:  # older configurations
        keys["rope.dimension_count"] = int(s.number("rotary_pct", default=0.25) * s.head_size)
    return keys


CHECKPOINTS = (
    Checkpoint(
        models=("GPTNeoXForCausalLM",),
        layers="gpt_neox.layers",
        names={
            "attention.query_key_value": in_order(
                lambda rows, s: np.concatenate(grouped(rows, s.heads, s.heads)), "attn_qkv"
            ),
            "attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        outer={
            "gpt_neox.embed_in": "token_embd",
            "gpt_neox.final_layer_norm": "output_norm",
            "embed_out": "output",
        },
        ignored=(".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                qkv_bias=True,
                output_bias=True,
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=Activation.GELU,
                gated=False,
                bias=True,
            ),
            mlp_norm=norm("ffn_norm"),
            parallel=h.boolean("use_parallel_residual", True),
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
