"""Nomic BERT (encoder): bidirectional attention, half-split RoPE, SwiGLU, query, key and value in
one tensor, post-norm layer norms."""

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint
from ingot.models.checkpoint_parts import EMBEDDINGS, encoder_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import post_norm_encoder
from ingot.models.spec import AttentionSpec, MlpSpec, Network

CHECKPOINTS = (
    Checkpoint(
        models=("NomicBertModel",),
        accepts=lambda s: s.integer("moe_every_n_layers", default=0) == 0,
        layers="encoder.layers",
        names={
            "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output",
            "norm1": "attn_output_norm",
            "norm2": "layer_output_norm",
            "mlp.fc11": "ffn_up",
            "mlp.fc12": "ffn_gate",
            "mlp.fc2": "ffn_down",
        },
        outer={**EMBEDDINGS, "emb_ln": "token_embd_norm"},
        keys=encoder_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.HALF_SPLIT)
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    return post_norm_encoder(
        h,
        lambda kv_heads: AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=rope,
            fused_qkv=True,
            causal=False,
        ),
        [mlp] * h.layers,
    )
