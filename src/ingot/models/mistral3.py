"""Ministral 3, Mistral Small 3.1: RMS norms, interleaved RoPE, SwiGLU, YaRN without a change of
magnitude; queries are scaled by their positions after the original context."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint, Value
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def _keys(s: Settings) -> Mapping[str, Value]:
    rope = s.rope or {}
    return {
        "rope.scaling.yarn_log_multiplier": rope.get("mscale_all_dim"),
        "attention.temperature_scale": rope.get("llama_4_scaling_beta"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=(
            "Ministral3ForCausalLM",
            "Mistral3ForConditionalGeneration",
        ),
        accepts=lambda s: s.find("kv_lora_rank") is None,
        names=INTERLEAVED,
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                temper=h.temper(),
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=mlp,
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
    )
