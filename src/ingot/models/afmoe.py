"""Trinity (AFMoE): a sigmoid gate on attention, norms before and after each block and of each head,
three of four layers with a sliding window, the others without RoPE; sigmoid experts with a
selection bias, shared experts, first layers dense."""

import math
from collections.abc import Mapping

from ingot.errors import ConversionError
from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec, Network, NormSpec

_FULL_EVERY = 4  # layers; the others see a window
_SIGMOID = 2  # a file's number of this gating


def _keys(s: Settings) -> Mapping[str, Value]:
    if s.integer("global_attn_every_n_layers", default=_FULL_EVERY) != _FULL_EVERY:
        raise ConversionError(f"config.json: global_attn_every_n_layers must be {_FULL_EVERY}")
    if not s.boolean("mup_enabled", True):
        raise ConversionError(
            "config.json: models without a scaled embedding (mup_enabled) cannot run"
        )
    return {
        "attention.sliding_window": s.integer("sliding_window"),
        "expert_shared_count": s.integer("num_shared_experts", default=0),
        "leading_dense_block_count": s.integer("num_dense_layers", default=0),
        "expert_gating_func": _SIGMOID,
        "expert_weights_norm": s.boolean("route_norm", True),
        "expert_weights_scale": s.number("route_scale", default=1.0),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("AfmoeForCausalLM",),
        names={
            "post_attention_layernorm": "post_attention_norm",
            "pre_mlp_layernorm": "ffn_norm",
            "post_mlp_layernorm": "post_ffw_norm",
            "self_attn.gate_proj": "attn_gate",
            "mlp.router.gate": "ffn_gate_inp",
            "mlp.expert_bias": "exp_probs_b.bias",
        },
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SIGMOID),
        normalize=h.boolean("expert_weights_norm", True),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=True,
        shared=h.shared_expert(),
    )
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        whole = (index + 1) % _FULL_EVERY == 0  # sees all tokens
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None if whole else rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            window=0 if whole else h.window(),
            gated=True,
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                attention_post_norm=norm("post_attention_norm"),
                mlp=dense if index < h.dense_layers else experts,
                mlp_norm=norm("ffn_norm"),
                mlp_post_norm=norm("post_ffw_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=math.sqrt(h.width),
    )
