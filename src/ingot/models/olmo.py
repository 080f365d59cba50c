"""OLMo: layer norms without weights, interleaved RoPE, SwiGLU."""

from ingot.errors import ModelError
from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("OlmoForCausalLM",),
        names=INTERLEAVED,
        keys=lambda s: {
            "attention.layer_norm_epsilon": 1e-5,
            "attention.clamp_kqv": s.find("clip_qkv"),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, weight=False)

    if clamp := h.number("attention.clamp_kqv", 0.0):
        raise ModelError(
            f"{h.architecture}.attention.clamp_kqv is {clamp}; models that clamp query, key and "
            "value are not supported"
        )
    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=norm("ffn_norm"),
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
