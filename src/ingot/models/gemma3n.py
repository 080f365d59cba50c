"""Gemma 3n (text): four streams, of which a layer works on one (AltUp), a way around attention
(Laurel), an input of every layer made of the token, a sliding window in four of five layers; the
last layers read the keys and values of others; the first keep the peaks of their gates."""

import math
from collections.abc import Mapping
from statistics import NormalDist

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import PRE_AND_POST_NORMS, Checkpoint, Value
from ingot.models.checkpoint_parts import LAYER_INPUTS, LAYER_INPUTS_OUTER, layer_input_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import (
    AttentionSpec,
    LayerInputSpec,
    LayerInputsSpec,
    MlpSpec,
    Network,
    NormSpec,
    StreamLayerSpec,
)

_FULL_EVERY = 5
_WINDOW_BASE = 10000.0
_STREAMS, _LAUREL_RANK, _LOGIT_CAP = 4, 64, 30.0  # the second is in no file


def _keys(s: Settings) -> Mapping[str, Value]:
    shares = s.numbers("activation_sparsity_pattern")
    return {
        **layer_input_keys(s),
        "altup.num_inputs": s.integer("altup_num_inputs"),
        "altup.active_idx": s.integer("altup_active_idx"),
        "activation_sparsity_scale": [
            NormalDist().inv_cdf(share) if 0 < share < 1 else -math.inf for share in shares
        ],
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
        names={
            **PRE_AND_POST_NORMS,
            **LAYER_INPUTS,
            "altup.correct_output_scale": "altup_correct_scale.weight",
            "altup.correction_coefs": "altup_correct_coef",
            "altup.prediction_coefs": "altup_predict_coef",
            "altup.modality_router": "altup_router",
            "altup.router_norm": "altup_router_norm",
            "laurel.linear_left": "laurel_l",
            "laurel.linear_right": "laurel_r",
            "laurel.post_laurel_norm": "laurel_post_norm",
        },
        outer={
            **LAYER_INPUTS_OUTER,
            "model.altup_projections.{}": "altup_proj",
            "model.altup_unembed_projections.{}": "altup_unembd_proj",
        },
        least_rows={"per_layer_token_embd.weight": lambda s: s.positive("vocab_size")},
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    count = h.size("altup.num_inputs", _STREAMS)
    windows = h.window_layers(_FULL_EVERY)
    full_rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    peaks = h.numbers_per_layer(f"{h.architecture}.activation_sparsity_scale", finite=False)
    widths = h.per_layer("feed_forward_length")
    parts = zip(windows, h.shared_kv(windows), h.kv_heads, widths, peaks, strict=True)
    layers = [
        StreamLayerSpec(
            count=count,
            active=h.index("altup.active_idx", count),
            router_norm=norm("altup_router_norm"),
            laurel_rank=_LAUREL_RANK,
            laurel_norm=norm("laurel_post_norm"),
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=window_rope if window else full_rope,
                scale=1.0,
                query_norm=norm("attn_q_norm"),
                key_norm=norm("attn_k_norm"),
                value_norm=NormSpec("attn_v_norm", h.rms_epsilon, weight=False),
                window=h.size("attention.sliding_window") if window else 0,
                kv_of=kv_of,
            ),
            attention_norm=norm("attn_norm"),
            attention_post_norm=norm("post_attention_norm"),
            mlp=MlpSpec(
                width=width,
                activation=Activation.GELU_TANH,
                peaks=deviations if math.isfinite(deviations) else None,
            ),
            mlp_norm=norm("ffn_norm"),
            mlp_post_norm=norm("post_ffw_norm"),
            layer_input=LayerInputSpec(activation=Activation.GELU_TANH, norm=norm("post_norm")),
        )
        for window, kv_of, kv_heads, width, deviations in parts
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.width**0.5,
        layer_inputs=LayerInputsSpec(
            width=h.size("embedding_length_per_layer_input"), norm=norm("per_layer_proj_norm")
        ),
        streams=count,
        logit_softcap=h.not_negative("final_logit_softcapping") or _LOGIT_CAP,
    )
