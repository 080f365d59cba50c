"""The parts an architecture is described with.

An architecture file returns a `Network`: layers of blocks, each a frozen dataclass that
says what is special about it. Names are the file's own, without the `blk.N.` in front and
the `.weight` behind. `lower.py` turns a Network into a ComputationGraph; nothing here
computes anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ingot.graph.ops import Activation, Gating, NormKind, RopeLayout


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A normalization and the tensors that scale it (`name`.weight, `name`.bias).

    A few files call the first one `name` alone: `plain_name`.
    """

    name: str
    epsilon: float
    kind: NormKind = NormKind.RMS
    bias: bool = False
    weight: bool = True
    plain_name: bool = False


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary positions: speeds of the turning pairs, see `ingot.graph.rope`."""

    frequencies: tuple[float, ...]
    layout: RopeLayout
    magnitude: float = 1.0


class NormOver(StrEnum):
    """What query and key norms take together, and what shape their weights have."""

    HEAD = "head"  # every head by itself, all with the same weights
    EACH_HEAD = "each head"  # every head by itself, with weights of its own
    ROW = "row"  # all heads of a token


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """attn_q, attn_k, attn_v, attn_output around attention."""

    heads: int
    kv_heads: int
    head_size: int
    rope: RopeSpec | None
    scale: float | None = None  # None: 1 / sqrt(head_size)
    fused_qkv: bool = False  # attn_qkv holds the rows of all three
    qkv_bias: bool = False
    output_bias: bool = False
    query_norm: NormSpec | None = None
    key_norm: NormSpec | None = None
    norm_over: NormOver = NormOver.HEAD
    norms_last: bool = False  # after RoPE
    causal: bool = True  # no token sees later ones
    window: int = 0
    chunked: bool = False  # windows lie side by side
    temper: "TemperSpec | None" = None
    softcap: float = 0.0
    sinks: bool = False  # attn_sinks: one more score in each head's softmax
    inner_norm: NormSpec | None = None  # before attn_output
    gated: bool = False  # attn_gate: its sigmoid multiplies what attention gives
    gate_in_query: bool = False  # attn_q holds a head's query and after it its gate


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSpec:
    """Multi-head latent attention: keys and values of all heads are made of one short row.

    attn_kv_a_mqa makes the row and a key with positions that all heads share. Queries are made by
    attn_q, or by attn_q_a and attn_q_b. What makes keys and values of the row, attn_k_b and
    attn_v_b or both in attn_kv_b, is applied to queries and to what attention gives instead: only
    the row and the shared key are kept of a token.
    """

    heads: int
    latent: int  # elements of the row
    rotary: int  # elements of the shared key
    key_size: int  # elements of a head's own key
    value_size: int
    rope: RopeSpec
    scale: float
    latent_norm: NormSpec
    query_rank: int = 0  # of attn_q_a; 0: there is only attn_q
    query_norm: NormSpec | None = None  # of what attn_q_a gives
    fused: bool = False  # attn_kv_b holds a head's rows of attn_k_b, transposed, and of attn_v_b
    temper: "TemperSpec | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperSpec:
    """Queries are times 1 + scale * log(1 + floor((position + offset) / length))."""

    scale: float
    length: int
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSpec:
    """ssm_in, ssm_conv1d, ssm_x, ssm_dt, ssm_a, ssm_d, ssm_out around a state space.

    Every channel is a head of its own, with steps that ssm_x makes `step_rank` numbers of and
    ssm_dt makes whole.
    """

    width: int  # channels
    states: int
    taps: int  # of the convolution
    step_rank: int
    inner_norms: tuple[NormSpec, NormSpec, NormSpec] | None = (
        None  # of the parts of ssm_x: dt, b, c
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Spec:
    """ssm_in, ssm_conv1d, ssm_dt, ssm_a, ssm_d, ssm_norm, ssm_out around a state space.

    Heads of several channels, and groups of heads with the same b and c; the convolution is over
    these too.
    """

    width: int  # channels
    states: int
    taps: int  # of the convolution
    heads: int
    groups: int
    norm: NormSpec | None  # of each group, after the gate


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvSpec:
    """shortconv.in_proj, shortconv.conv, shortconv.out_proj: a convolution between two gates."""

    taps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSpec:
    """A gated delta rule: attn_qkv and attn_gate, ssm_conv1d, ssm_alpha, ssm_beta and ssm_dt,
    ssm_a, ssm_norm, ssm_out.

    Queries and keys have fewer heads than values. In older files ssm_in holds what attn_qkv and
    attn_gate do, key head by key head; ssm_ba holds ssm_beta and ssm_alpha like this.
    """

    heads: int
    key_heads: int
    key_size: int
    value_size: int
    taps: int  # of the convolution
    norm: NormSpec  # of each head, before the gate
    tiled: bool = False  # see `ingot.graph.ops.DeltaRule`
    mixed_inputs: bool = False  # ssm_in
    mixed_rates: bool = False  # ssm_ba


# What keeps a state instead of keys and values.
StateSpec = MambaSpec | Mamba2Spec | ShortConvSpec | DeltaSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class XieluSpec:
    """An activation with numbers of its own in every layer, see `ingot.graph.ops.Xielu`."""

    rise: float
    fall: float
    slope: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSpec:
    """ffn_up, ffn_down and, if gated, ffn_gate."""

    width: int
    activation: Activation | XieluSpec
    gated: bool = True
    fused_gate: bool = False  # ffn_up holds the rows of the gate and after them its own
    bias: bool = False
    inner_norm: NormSpec | None = None  # before ffn_down


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedExpertSpec:
    """An expert that every token uses: ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp."""

    width: int
    gated: bool = False  # ffn_gate_inp_shexp: a number per token, whose sigmoid multiplies it


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """ffn_gate_inp scores experts; ffn_gate_exps, ffn_up_exps, ffn_down_exps of the chosen ones."""

    count: int
    used: int
    width: int
    activation: Activation
    gating: Gating
    gated: bool = True  # else there is no ffn_gate_exps, nor a gate of the shared one
    normalize: bool = False  # the weights of the chosen ones add up to 1
    scale: float = 1.0  # of all weights
    near: float = 0.0  # of the sparse mixer
    bias: bool = False  # of the scores and of every expert
    selection_bias: bool = False  # exp_probs_b: added to choose, not to weigh
    groups: "ExpertGroupsSpec | None" = None
    weigh_input: bool = False  # of the one expert, not what it gives
    shared: SharedExpertSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroupsSpec:
    """Only experts of the best groups are chosen; the largest scores of a group say how good."""

    count: int
    used: int
    best: int  # scores that count


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """Attention and MLP on a residual stream; or one of the two alone.

    In the place of attention there may be a state space or a convolution. One after the other,
    each after its norm if it has one; or `parallel`: both look at the same stream, and an MLP
    without a norm of its own is after the attention's. A post-norm is applied to a block's result
    before it joins the stream, a stream norm to the stream after that.
    """

    attention: AttentionSpec | LatentSpec | StateSpec | None
    attention_norm: NormSpec | None
    mlp: MlpSpec | ExpertsSpec | None
    mlp_norm: NormSpec | None
    parallel: bool = False
    attention_post_norm: NormSpec | None = None
    mlp_post_norm: NormSpec | None = None
    attention_stream_norm: NormSpec | None = None
    mlp_stream_norm: NormSpec | None = None
    residual_scale: float = 1.0  # of what attn_output and ffn_down give
    beside: Mamba2Spec | None = None  # attention: of the same input, into the same stream


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """cls and cls.output on one row of a text: the tanh of one, then the other.

    The row is the first token's, or the last one's in a causal network. Each matrix has as many
    rows as said; 0: there is none.
    """

    dense: int
    outputs: int
    dense_bias: bool
    output_bias: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Embedding, layers, norm and output (tied to the embedding if absent).

    Without `logits` there is no output matrix: a row of the network's width is what comes out
    for every token, or with a `head` scores for a whole text.
    """

    width: int
    vocabulary: int
    context_length: int
    layers: Sequence[LayerSpec]
    output_norm: NormSpec | None
    embedding_scale: float = 1.0
    learned_positions: bool = False  # position_embd: a row for each position
    token_types: int = 0  # rows of token_types, one of which is added to every token
    embedding_norm: NormSpec | None = None
    logits: bool = True
    head: HeadSpec | None = None
    output_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    mtp_layers: int = 0  # after the last one, for multi-token prediction: not read
