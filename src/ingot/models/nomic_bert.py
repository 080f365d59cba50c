"""Nomic BERT (encoder): bidirectional attention, half-split RoPE, SwiGLU, query, key and value in
one tensor, post-norm layer norms."""

from ingot.graph.ops import Activation, NormKind, RopeLayout
from ingot.models.checkpoint import EMBEDDINGS, Checkpoint, encoder_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("NomicBertModel",),
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
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                fused_qkv=True,
                causal=False,
            ),
            attention_norm=None,
            attention_stream_norm=norm("attn_output_norm"),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=None,
            mlp_stream_norm=norm("layer_output_norm"),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=None,
        token_types=h.token_types,
        embedding_norm=norm("token_embd_norm"),
        logits=False,
        head=h.head(),
    )
