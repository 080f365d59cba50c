"""Baichuan 1 and 2: RMS norms, SwiGLU; interleaved RoPE in the 7B models, ALiBi in the 13B ones."""

from collections.abc import Sequence

import numpy as np

from ingot.arrays import Floats
from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import Checkpoint, Order, Rows, interleaved
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec

_LAYERS_WITH_ALIBI = 40  # the 13B models; no key tells them apart

_SECOND_VOCABULARY = 125696  # tokens of Baichuan 2, whose output matrix is normalized on use


def _parts(rows: int, s: Settings) -> Sequence[Order]:
    """Queries, keys and values, which follow each other."""
    query, key, value = np.split(np.arange(rows), 3)
    order = interleaved(len(query), s.heads)
    return [query[order], key[order], value]


def _normalized(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    normalized: Floats = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
    return normalized


_NAMES = {"self_attn.W_pack": Rows(("attn_q", "attn_k", "attn_v"), _parts)}
CHECKPOINTS = (
    Checkpoint(
        models=("BaichuanForCausalLM", "BaiChuanForCausalLM"),
        accepts=lambda s: s.find("vocab_size") != _SECOND_VOCABULARY,
        names=_NAMES,
        defaults={"rope_theta": 10000.0},
    ),
    Checkpoint(
        models=("BaichuanForCausalLM", "BaiChuanForCausalLM"),
        accepts=lambda s: s.find("vocab_size") == _SECOND_VOCABULARY,
        names=_NAMES,
        values={"attn_output.weight": lambda w: w, "output.weight": _normalized},
        defaults={"rope_theta": 10000.0},
    ),
)


def network(h: Hyperparameters) -> Network:
    alibi = h.layers == _LAYERS_WITH_ALIBI
    rope = None if alibi else h.rope(RopeLayout.INTERLEAVED)
    mlp = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=rope, alibi=alibi
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
