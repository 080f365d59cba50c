"""Baichuan 1 and 2 (7B): RMS norms, interleaved RoPE, SwiGLU."""

from ingot.errors import ModelError
from ingot.graph.ops import Activation, RopeLayout
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_LAYERS_WITH_ALIBI = 40  # the 13B models; no key tells them apart


def network(h: Hyperparameters) -> Network:
    if h.layers == _LAYERS_WITH_ALIBI:
        raise ModelError(
            f"{h.architecture}.block_count is {h.layers}: a 13B model, whose positions (ALiBi) are "
            "not supported; the 7B models are"
        )
    rope = h.rope(RopeLayout.INTERLEAVED)
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
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
