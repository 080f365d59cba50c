"""ChatGLM 2 and 3, GLM 4 (9B): query, key and value in one tensor with biases, gate and up in
another, interleaved RoPE on half of each head."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("GlmForCausalLM",), names={f"self_attn.{part}_proj": "attn_qkv" for part in "qkv"}
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU, fused_gate=True)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                qkv_bias=h.has_tensor("blk.0.attn_qkv.bias"),
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
