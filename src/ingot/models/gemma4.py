"""Gemma 4 (text): pre-norms and post-norms, norms of query, key and value, a sliding window with
smaller heads in most layers; the last layers read the keys and values of others; an input of every
layer made of the token; or experts beside the MLP."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import PRE_AND_POST_NORMS, Checkpoint, Value
from ingot.models.checkpoint_parts import LAYER_INPUTS, LAYER_INPUTS_OUTER, layer_input_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import (
    AttentionSpec,
    BesideExpertsSpec,
    ExpertsSpec,
    LayerInputSpec,
    LayerInputsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
)

_WINDOW_BASE = 10000.0
_SIZES = ("attention.key_length", "attention.value_length", "rope.dimension_count")
_SHOWN = ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
          "<tool_response|>", '<|"|>')  # fmt: skip


def _keys(s: Settings) -> Mapping[str, Value]:
    keys = layer_input_keys(s)  # which also checks the kinds of layers
    full = s.of_full_layers("head_dim", "global_head_dim")
    heads = s.of_full_layers("num_key_value_heads", "num_global_key_value_heads")
    sizes = (("", full), ("_swa", s.head_size))
    width, shared = s.integer("intermediate_size"), s.integer("num_kv_shared_layers", default=0)
    twice = s.boolean("use_double_wide_mlp", False)
    return {
        **keys,
        "feed_forward_length": [
            width * (2 if twice and layer >= s.layers - shared else 1) for layer in range(s.layers)
        ],
        "attention.head_count_kv": [
            heads if kind == "full_attention" else s.kv_heads for kind in s.find("layer_types")
        ],
        **{f"{key}{layers}": size for key in _SIZES for layers, size in sizes},
        "expert_used_count": s.find("top_k_experts"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
        names={
            **PRE_AND_POST_NORMS,
            **LAYER_INPUTS,
            "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
            "post_feedforward_layernorm_1": "post_ffw_norm_1",
            "post_feedforward_layernorm_2": "post_ffw_norm_2",
            "layer_scalar": "layer_output_scale.weight",
            "router.proj": "ffn_gate_inp",
            "router.scale": "ffn_gate_inp.scale",
            "router.per_expert_scale": "ffn_down_exps.scale",
            "experts.gate_up_proj": "ffn_gate_up_exps.weight",
            "experts.down_proj": "ffn_down_exps.weight",
        },
        outer=LAYER_INPUTS_OUTER,
        keys=_keys,
        merged_characters="gemma4",
        shown_tokens=_SHOWN,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def experts(layer: int) -> BesideExpertsSpec | None:
        if not h.has_tensor(f"blk.{layer}.ffn_gate_inp.weight"):
            return None
        return BesideExpertsSpec(
            experts=ExpertsSpec(
                count=h.experts,
                used=h.experts_used,
                width=h.size("expert_feed_forward_length"),
                activation=Activation.GELU_TANH,
                gating=Gating.SOFTMAX,
                normalize=True,
                fused_gate=not h.has_tensor(f"blk.{layer}.ffn_gate_exps.weight"),
                scales=h.has_tensor("blk.0.ffn_down_exps.scale"),
            ),
            router_norm=NormSpec("ffn_gate_inp.scale", h.rms_epsilon, plain_name=True),
            norm=norm("pre_ffw_norm_2"),
            post_norm=norm("post_ffw_norm_2"),
            mlp_post_norm=norm("post_ffw_norm_1"),
        )

    windows = h.window_layers()
    full_rope = h.rope(RopeLayout.HALF_SPLIT, factors_required=False in windows)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    inputs = h.count("embedding_length_per_layer_input")
    full = windows.index(False) if False in windows else 0
    keys_are_values = not h.has_tensor(f"blk.{full}.attn_v.weight")
    parts = zip(
        windows, h.shared_kv(windows), h.kv_heads, h.per_layer("feed_forward_length"), strict=True
    )
    layers = []
    for layer, (window, kv_of, kv_heads, width) in enumerate(parts):
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.window_head_size if window else h.head_size,
            rope=window_rope if window else full_rope,
            scale=1.0,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            value_norm=NormSpec("attn_v_norm", h.rms_epsilon, weight=False),
            value_is_key=not window and keys_are_values,
            window=h.size("attention.sliding_window") if window else 0,
            kv_of=kv_of,
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                attention_post_norm=norm("post_attention_norm"),
                mlp=MlpSpec(width=width, activation=Activation.GELU_TANH),
                mlp_norm=norm("ffn_norm"),
                mlp_post_norm=norm("post_ffw_norm"),
                beside_experts=experts(layer),
                layer_input=(
                    LayerInputSpec(activation=Activation.GELU_TANH, norm=norm("post_norm"))
                    if inputs
                    else None
                ),
                output_scale=h.has_tensor("blk.0.layer_output_scale.weight"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.width**0.5,
        layer_inputs=(
            LayerInputsSpec(width=inputs, norm=norm("per_layer_proj_norm")) if inputs else None
        ),
        logit_softcap=h.not_negative("final_logit_softcapping"),
    )
