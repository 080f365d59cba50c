"""BLOOM: ALiBi instead of positions, a layer norm after the embedding, layer norms, biases."""

import numpy as np

from ingot.graph.ops import Activation, NormKind
from ingot.models.checkpoint import Checkpoint, grouped, in_order
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

CHECKPOINTS = (
    Checkpoint(
        models=("BloomForCausalLM",),
        accepts=lambda s: not s.boolean("apply_residual_connection_post_layernorm", False),
        prefixes=("transformer.",),
        layers="h",
        names={
            "self_attention.query_key_value": in_order(
                lambda rows, s: np.concatenate(grouped(rows, s.heads, s.heads)), "attn_qkv"
            ),
            "self_attention.dense": "attn_output",
            "mlp.dense_h_to_4h": "ffn_up",
            "mlp.dense_4h_to_h": "ffn_down",
        },
        outer={
            "word_embeddings": "token_embd",
            "word_embeddings_layernorm": "token_embd_norm",
            "ln_f": "output_norm",
        },
        keys=lambda s: {
            "attention.head_count_kv": s.heads,
            "feed_forward_length": 4 * s.width,
        },
        defaults={"seq_length": 2048, "tie_word_embeddings": True},
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)

    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=None,
                alibi=True,
                fused_qkv=True,
                qkv_bias=True,
                output_bias=True,
            ),
            attention_norm=norm("attn_norm"),
            mlp=MlpSpec(
                width=h.size("feed_forward_length"),
                activation=Activation.GELU_TANH,
                gated=False,
                bias=True,
            ),
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
        embedding_norm=norm("token_embd_norm"),
    )
