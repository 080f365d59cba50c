"""The parts an architecture is described with.

An architecture file returns a `Network`: layers of blocks, each a frozen dataclass that
says what is special about it. Names are the file's own, without the `blk.N.` in front and
the `.weight` behind. `lower.py` turns a Network into a ComputationGraph; nothing here
computes anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.graph.ops import Activation, NormKind, RopeLayout


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A normalization and the tensor that scales it (`name`.weight, `name`.bias)."""

    name: str
    epsilon: float
    kind: NormKind = NormKind.RMS
    bias: bool = False


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary positions: speeds of the turning pairs, see `ingot.graph.rope`."""

    frequencies: tuple[float, ...]
    layout: RopeLayout
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """attn_q, attn_k, attn_v, attn_output around causal attention."""

    heads: int
    kv_heads: int
    head_size: int
    rope: RopeSpec | None
    scale: float | None = None  # None: 1 / sqrt(head_size)
    qkv_bias: bool = False
    output_bias: bool = False
    query_norm: NormSpec | None = None
    key_norm: NormSpec | None = None
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False  # attn_sinks: one more score in each head's softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSpec:
    """ffn_up, ffn_down and, if gated, ffn_gate."""

    width: int
    activation: Activation
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """Attention and MLP on a residual stream.

    One after the other, each behind its norm; or, without `mlp_norm`, side by side behind
    the same norm. A post-norm is applied to a block's result before it joins the stream.
    """

    attention: AttentionSpec
    attention_norm: NormSpec
    mlp: MlpSpec
    mlp_norm: NormSpec | None
    attention_post_norm: NormSpec | None = None
    mlp_post_norm: NormSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A decoder: embedding, layers, norm and output (tied to the embedding if absent)."""

    width: int
    vocabulary: int
    context_length: int
    layers: Sequence[LayerSpec]
    output_norm: NormSpec
    embedding_scale: float = 1.0
    output_bias: bool = False
    logit_softcap: float = 0.0
