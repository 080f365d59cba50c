"""Phi 3, 3.5 and 4: query, key and value in one tensor, gate and up in another, a sliding window,
RoPE factors for short and for long contexts."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint, window_key
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (Checkpoint(models=("Phi3ForCausalLM",), keys=window_key),)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                window=h.window(),
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"), activation=Activation.SILU, fused_gate=True
            ),
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
