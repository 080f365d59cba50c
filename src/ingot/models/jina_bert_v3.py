"""Jina embeddings v3 (encoder): bidirectional attention, half-split RoPE, query, key and value in
one tensor, biases everywhere, post-norm layer norms."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.checkpoint_parts import EMBEDDINGS, encoder_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import post_norm_encoder
from ingot.models.spec import AttentionSpec, MlpSpec, Network

CHECKPOINTS = (
    Checkpoint(
        models=("JinaEmbeddingsV3Model",),
        layers="encoder.layers",
        names={
            "mixer.Wqkv": "attn_qkv",
            "mixer.out_proj": "attn_output",
            "norm1": "attn_output_norm",
            "norm2": "layer_output_norm",
            "mlp.fc1": "ffn_up",
            "mlp.fc2": "ffn_down",
        },
        outer={**EMBEDDINGS, "emb_ln": "token_embd_norm"},
        keys=encoder_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = MlpSpec(
        width=h.size("feed_forward_length"), activation=Activation.GELU, gated=False, bias=True
    )
    return post_norm_encoder(
        h,
        lambda kv_heads: AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=rope,
            fused_qkv=True,
            qkv_bias=True,
            output_bias=True,
            causal=False,
        ),
        [mlp] * h.layers,
        ranks=False,
    )
