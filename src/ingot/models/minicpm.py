"""MiniCPM 1 and 2, MiniCPM 4: RMS norms, interleaved RoPE, multipliers for the embedding, residual
additions and logits."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

# Those of the first models, whose files do not state them.
_EMBEDDING_SCALE, _DEPTH_SCALE, _BASE_WIDTH = 12.0, 1.4, 256


CHECKPOINTS = (
    Checkpoint(
        models=("MiniCPMForCausalLM",),
        names=INTERLEAVED,
        keys=lambda s: {
            "embedding_scale": s.number("scale_emb"),
            "residual_scale": s.number("scale_depth") / s.layers**0.5,
            "logit_scale": s.width / s.number("dim_model_base"),
        },
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
            residual_scale=h.number("residual_scale", _DEPTH_SCALE / h.layers**0.5),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
        embedding_scale=h.number("embedding_scale", _EMBEDDING_SCALE),
        logit_scale=1 / h.positive("logit_scale", h.width / _BASE_WIDTH),
    )
