"""The parts an architecture is described with.

An architecture file returns a `Network`: layers of blocks, each a frozen dataclass that
says what is special about it. Names are the file's own, without the `blk.N.` in front and
the `.weight` behind. `lower.py` turns a Network into a ComputationGraph; nothing here
computes anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ingot.graph.ops import Activation, Gating, NormKind, RopeLayout, SeenPart


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
    value_norm: NormSpec | None = None  # of each head, without weights
    value_is_key: bool = False  # there is no attn_v: the key before its norm is the value
    kv_of: int | None = None  # the layer whose keys and values it reads; None: its own
    relative: "RelativeSpec | None" = None
    alibi: bool = False
    seen: SeenPart = SeenPart.ALL
    output: str = "attn_output"  # what its output matrix is called


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeSpec:
    """attn_rel_b of a layer: what heads add to scores, by the bucket of a distance."""

    layer: int  # that has the tensor
    buckets: int
    reach: int  # farther keys count as those so far away


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossSpec:
    """cross_attn_q, cross_attn_k, cross_attn_v, cross_attn_o: attention over an encoder's rows."""

    heads: int
    head_size: int
    scale: float
    norm: NormSpec


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
    indexer: "IndexerSpec | None" = None  # None: a token sees all positions


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerSpec:
    """indexer.attn_q_b, indexer.attn_k, indexer.k_norm, indexer.proj: they choose positions.

    Queries of several heads are made of what attn_q_b reads; a key that they share, and a weight
    for each of them, of the layer's input. A layer whose indexer is `shared` has none of these: it
    sees what the layer before sees.
    """

    heads: int
    size: int  # of a query and a key
    rotary: int  # elements of them that are rotated, the first
    count: int  # of positions that are chosen
    rope: RopeSpec
    key_norm: NormSpec
    shared: bool = False


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
    down_bias: bool = False  # of ffn_down alone
    inner_norm: NormSpec | None = None  # before ffn_down
    peaks: float | None = None  # of the gate, what is so many deviations above its mean; None: all


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
    fused_gate: bool = False  # ffn_gate_up_exps holds the rows of an expert's gate, then of its up
    scales: bool = False  # ffn_down_exps.scale: a number for each expert
    groups: "ExpertGroupsSpec | None" = None
    weigh_input: bool = False  # of the one expert, not what it gives
    early: bool = False  # what is scored is the stream before the layer, without a norm
    shared: SharedExpertSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroupsSpec:
    """Only experts of the best groups are chosen; the largest scores of a group say how good."""

    count: int
    used: int
    best: int  # scores that count


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideExpertsSpec:
    """Experts beside an MLP: each after norms of its own, and with a norm of what it gives.

    ffn_gate_inp scores the stream after a norm of its own, whose weights are ffn_gate_inp.scale.
    """

    experts: ExpertsSpec
    router_norm: NormSpec
    norm: NormSpec
    post_norm: NormSpec
    mlp_post_norm: NormSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInputSpec:
    """inp_gate, proj: a part of the network's layer inputs joins the stream through a gate."""

    activation: Activation
    norm: NormSpec  # of what joins


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLayerSpec:
    """A layer that works on one of several streams (AltUp), with a way around attention (Laurel).

    altup_router weighs streams; altup_predict_coef mixes them before the layer, altup_correct_coef
    spreads what the layer changed; altup_correct_scale is for the gate of the layer's input, which
    joins all but the first stream. laurel_l and laurel_r lead around attention; both together are
    divided by the root of two.
    """

    count: int  # of streams
    active: int  # the one that the layer works on
    router_norm: NormSpec
    laurel_rank: int
    laurel_norm: NormSpec
    attention: AttentionSpec
    attention_norm: NormSpec
    attention_post_norm: NormSpec
    mlp: MlpSpec
    mlp_norm: NormSpec
    mlp_post_norm: NormSpec
    layer_input: LayerInputSpec


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
    again_norm: NormSpec | None = None  # after attention its input is added again, then this
    cross: CrossSpec | None = None  # after attention
    residual_scale: float = 1.0  # of what attn_output and ffn_down give
    beside: Mamba2Spec | None = None  # attention: of the same input, into the same stream
    beside_experts: BesideExpertsSpec | None = None
    layer_input: LayerInputSpec | None = None
    output_scale: bool = False  # layer_output_scale: the stream after the layer is times it


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
class LayerInputsSpec:
    """per_layer_token_embd and per_layer_model_proj: an input of every layer, made of the token."""

    width: int  # of each layer
    norm: NormSpec  # per_layer_proj_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Embedding, layers, norm and output (tied to the embedding if absent).

    Without `logits` there is no output matrix: a row of the network's width is what comes out
    for every token, or with a `head` scores for a whole text.
    """

    width: int
    vocabulary: int
    context_length: int
    layers: Sequence[LayerSpec | StreamLayerSpec]
    output_norm: NormSpec | None
    embedding_scale: float = 1.0
    learned_positions: bool = False  # position_embd: a row for each position
    token_types: int = 0  # rows of token_types, one of which is added to every token
    embedding_norm: NormSpec | None = None
    layer_inputs: LayerInputsSpec | None = None
    streams: int = 1  # altup_proj makes the others of the first, altup_unembd_proj joins them
    logits: bool = True
    head: HeadSpec | None = None
    output_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    # Layers after the last one that predict tokens further ahead (lower_mtp.py)
    mtp: Sequence[LayerSpec] = ()
    stack: str = ""  # what is before blk in the names of its layers
    encoder: "Network | None" = None  # that reads prompts; its last rows are what `cross` sees
    start_token: int | None = None  # what a decoder begins with, if an encoder reads prompts
    unread: tuple[str, ...] = ()  # tensors that files may hold and nobody reads


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    """A draft that guesses tokens from hidden states of a target model (lower_draft.py).

    fc makes one hidden state of several layers' hidden states, side by side. The draft's layer
    reads the embedding of a token and the hidden state before it, each after its norm, side by
    side; what it adds, it adds to the hidden state.
    """

    width: int
    vocabulary: int  # tokens that it reads: those of the target
    outputs: int  # tokens that it can guess
    context_length: int
    target_width: int
    target_layers: tuple[int, ...]  # whose input it reads; one after the last: what that one gives
    target_norm: NormSpec | None  # of the hidden states side by side, before fc
    token_norm: NormSpec
    hidden_norm: NormSpec
    adds_to_normed: bool  # to the hidden state after its norm
    attention: AttentionSpec
    mlp: MlpSpec
    mlp_norm: NormSpec
    output_norm: NormSpec
    token_map: str | None  # a tensor: the target's number of each token that it can guess
