"""Llama 1 to 3, Mistral, SmolLM, Yi: RMS norms, interleaved RoPE, SwiGLU.

Also Mixtral: experts whose weights add up to one."""

from ingot.graph.ops import Activation, Gating, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
)

CHECKPOINTS = (
    Checkpoint(
        models=(
            "LlamaForCausalLM",
            "MistralForCausalLM",
            "MixtralForCausalLM",
        ),
        names=INTERLEAVED,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    mlp: MlpSpec | ExpertsSpec
    mlp = MlpSpec(
        width=h.size("feed_forward_length"),
        activation=Activation.SILU,
        bias=h.has_tensor("blk.0.ffn_up.bias"),
    )
    if h.integer("expert_count", 0):
        mlp = ExpertsSpec(
            count=h.experts,
            used=h.experts_used,
            width=mlp.width,
            activation=Activation.SILU,
            gating=Gating.SOFTMAX,
            normalize=True,
        )
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=h.has_tensor("blk.0.attn_q.bias"),
                output_bias=h.has_tensor("blk.0.attn_output.bias"),
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
