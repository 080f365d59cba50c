"""gpt-oss: experts with biases and a clamped gate, attention with sinks and biases, a sliding
window in every other layer, YaRN."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import Checkpoint, Place, Rows, alternating, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, ExpertsSpec, LayerSpec, Network, NormSpec

_GATE_UP = ("ffn_gate_exps", "ffn_up_exps")
_WEIGHTS = Rows(tuple(f"{name}.weight" for name in _GATE_UP), alternating)
_NAMES: Mapping[str, Place] = {
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate_up_proj": _WEIGHTS,
    "mlp.experts.gate_up_proj_blocks": _WEIGHTS,
    "mlp.experts.gate_up_proj_bias": Rows(tuple(f"{name}.bias" for name in _GATE_UP), alternating),
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj_blocks": "ffn_down_exps.weight",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
}
CHECKPOINTS = (
    Checkpoint(
        models=("GptOssForCausalLM",),
        names=_NAMES,
        transposed=("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
        keys=lambda s: {
            **window_key(s),
            "expert_feed_forward_length": s.integer("intermediate_size"),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT, yarn_in_whole_pairs=False)
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.CLAMPED_SWIGLU,
        gating=Gating.CHOSEN_SOFTMAX,
        bias=True,
    )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=True,
                output_bias=True,
                window=0 if index % 2 else h.window(),
                sinks=True,
            ),
            attention_norm=norm("attn_norm"),
            mlp=experts,
            mlp_norm=norm("post_attention_norm"),
        )
        for index, kv_heads in enumerate(h.kv_heads)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
