"""GLM 4 (0414): pre-norms and post-norms, gate and up in one tensor, interleaved RoPE on half of
each head."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("Glm4ForCausalLM",),
        names={
            "post_self_attn_layernorm": "post_attention_norm",
            "post_mlp_layernorm": "post_ffw_norm",
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                qkv_bias=h.has_tensor("blk.0.attn_q.bias"),
            ),
            attention_norm=norm("attn_norm"),
            attention_post_norm=norm("post_attention_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"), activation=Activation.SILU, fused_gate=True
            ),
            mlp_norm=norm("ffn_norm"),
            mlp_post_norm=norm("post_ffw_norm"),
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
