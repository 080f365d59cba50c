"""Qwen 1: query, key and value in one tensor with biases, half-split RoPE, SwiGLU half as wide as
the file says."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("QWenLMHeadModel",),
        layers="transformer.h",
        names={
            "ln_1": "attn_norm",
            "ln_2": "ffn_norm",
            "attn.c_attn": "attn_qkv",
            "attn.c_proj": "attn_output",
            "mlp.w1": "ffn_up",
            "mlp.w2": "ffn_gate",
            "mlp.c_proj": "ffn_down",
        },
        outer={"transformer.wte": "token_embd", "transformer.ln_f": "output_norm"},
        keys=lambda s: {
            "attention.layer_norm_epsilon": None,
            "attention.layer_norm_rms_epsilon": s.number("layer_norm_epsilon"),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = MlpSpec(width=max(1, h.size("feed_forward_length") // 2), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                qkv_bias=True,
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
