"""InternLM 2: RMS norms, interleaved RoPE, SwiGLU."""

from collections.abc import Sequence

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint, Order, Rows, grouped, interleaved
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def _query_key_value(rows: int, s: Settings) -> Sequence[Order]:
    """By key head in the checkpoint; query and key in the half-split layout of RoPE."""
    query, key, value = grouped(rows, s.heads, s.kv_heads)
    order = interleaved(len(query), s.heads), interleaved(len(key), s.kv_heads)
    return query[order[0]], key[order[1]], value


CHECKPOINTS = (
    Checkpoint(
        models=("InternLM2ForCausalLM",),
        names={
            "attention_norm": "attn_norm",
            "attention.wqkv": Rows(("attn_q", "attn_k", "attn_v"), _query_key_value),
            "attention.wo": "attn_output",
            "feed_forward.w1": "ffn_gate",
            "feed_forward.w2": "ffn_down",
            "feed_forward.w3": "ffn_up",
            "ffn_norm": "ffn_norm",
        },
        outer={"model.tok_embeddings": "token_embd", "output": "output"},
    ),
)


def network(h: Hyperparameters) -> Network:
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
