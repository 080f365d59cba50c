"""Llama 4: attention in chunks with interleaved RoPE in three of four layers, in the others over
everything, without RoPE, with queries scaled by their positions; one sigmoid expert, whose input is
weighed, and a shared one, in all layers or every other."""

from collections.abc import Mapping

from ingot.errors import ModelError
from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Rows, Value, halves
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    SharedExpertSpec,
    TemperSpec,
)

_WHOLE_EVERY = 4  # layers
_CHUNK = 8192  # tokens, which no file says
_UNNORMED_EXPERTS = 128  # of the model whose heads are not normed
_TEMPER = TemperSpec(scale=0.1, length=_CHUNK, offset=1)


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        "feed_forward_length": s.integer("intermediate_size_mlp"),
        "expert_feed_forward_length": s.integer("intermediate_size"),
        "interleave_moe_layer_step": s.integer("interleave_moe_layer_step", default=1),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
        names={
            "feed_forward.router": "ffn_gate_inp",
            "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
            "feed_forward.shared_expert.up_proj": "ffn_up_shexp",
            "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
            "feed_forward.gate_proj": "ffn_gate",
            "feed_forward.up_proj": "ffn_up",
            "feed_forward.down_proj": "ffn_down",
            "feed_forward.experts.gate_up_proj": Rows(
                ("ffn_gate_exps.weight", "ffn_up_exps.weight"), halves
            ),
            "feed_forward.experts.down_proj": "ffn_down_exps.weight",
        },
        transposed=("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def plain(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon, weight=False)

    if h.experts_used != 1:
        raise ModelError(f"llama4.expert_used_count is {h.experts_used}; only 1 is supported")
    width = h.size("expert_feed_forward_length")
    experts = ExpertsSpec(
        count=h.experts,
        used=1,
        width=width,
        activation=Activation.SILU,
        gating=Gating.SIGMOID,
        shared=SharedExpertSpec(width=width),
        weigh_input=True,
    )
    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    rope, step = h.rope(RopeLayout.INTERLEAVED), h.size("interleave_moe_layer_step", 1)
    chunked = h.context_length > _CHUNK
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        whole = (index + 1) % _WHOLE_EVERY == 0
        normed = not whole and h.experts != _UNNORMED_EXPERTS
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=None if whole else rope,
            query_norm=plain("attn_q_norm") if normed else None,
            key_norm=plain("attn_k_norm") if normed else None,
            window=_CHUNK if chunked and not whole else 0,
            chunked=chunked and not whole,
            temper=_TEMPER if whole else None,
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                mlp=experts if (index + 1) % step == 0 else dense,
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
