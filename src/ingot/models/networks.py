"""Networks that several architectures share; their files say what is special about each.

The hyperparameters of a file come in, and the parts that differ; a `Network` goes out. Nothing here
knows which architectures use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ingot.graph.ops import Activation, Gating, NormKind, RopeLayout, SeenPart
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.spec import (
    AttentionSpec,
    CrossSpec,
    DeltaSpec,
    ExpertsSpec,
    IndexerSpec,
    LayerSpec,
    MlpSpec,
    Network,
    NormSpec,
    RelativeSpec,
    SharedExpertSpec,
    ShortConvSpec,
)

Mlp = MlpSpec | ExpertsSpec
_FULL_EVERY = 6  # layers: the others see a window
_WINDOW_BASE = 10000.0
_REACH = 128  # tokens: no file states how far distances count
_MOST_BUCKETS = 254  # of which a half is for distances below 128


def experts_and_gated_one(h: Hyperparameters) -> ExpertsSpec:
    """Softmax experts whose weights add up to one, and a shared one with a gate."""
    return ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=Gating.SOFTMAX,
        normalize=True,
        shared=SharedExpertSpec(width=h.size("expert_shared_feed_forward_length"), gated=True),
    )


def delta_network(h: Hyperparameters, delta: DeltaSpec, mlp: Mlp) -> Network:
    """The gated delta rule in most layers, attention with a gate and head norms in the others."""

    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    rope = h.rope(RopeLayout.HALF_SPLIT)
    # Those that predict tokens further ahead always have attention.
    attends = [*h.attention_layers[: h.own_layers], *[True] * h.mtp_layers]
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=rope,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            gate_in_query=True,
        )
        layers.append(
            LayerSpec(
                attention=attention if attends[index] else delta,
                attention_norm=norm("attn_norm"),
                mlp=mlp,
                mlp_norm=norm("post_attention_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers[: h.own_layers],
        output_norm=norm("output_norm"),
        mtp=layers[h.own_layers :],
    )


def short_conv_network(h: Hyperparameters, mlps: Sequence[Mlp]) -> Network:
    """Short convolutions, and attention with head norms in layers that have key heads."""

    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        return AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=h.rope(RopeLayout.HALF_SPLIT),
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
        )

    convolution = ShortConvSpec(taps=h.size("shortconv.l_cache"))
    layers = [
        LayerSpec(
            attention=attention(kv_heads) if kv_heads else convolution,
            attention_norm=norm("attn_norm"),
            mlp=mlp,
            mlp_norm=norm("ffn_norm"),
        )
        for kv_heads, mlp in zip(h.hybrid_kv_heads, mlps, strict=True)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("token_embd_norm"),  # what files call it
    )


def grouped_experts(h: Hyperparameters, default: Gating) -> ExpertsSpec:
    """Experts in groups, with shared ones beside them, and a gating that is stated or this one."""
    gating = h.gating(default)
    return ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=gating,
        normalize=h.boolean("expert_weights_norm", False),
        scale=h.positive("expert_weights_scale", 1.0),
        selection_bias=h.has_tensor(f"blk.{h.dense_layers}.exp_probs_b.bias"),
        groups=h.expert_groups(best=2 if gating is Gating.SIGMOID else 1),
        shared=h.shared_expert(),
    )


def latent_network(
    h: Hyperparameters, experts: ExpertsSpec, indexers: Sequence[IndexerSpec | None] = ()
) -> Network:
    """Multi-head latent attention, and experts after the first layers, which are dense.

    With `indexers`, one for each layer, tokens see the positions that these choose.
    """

    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    dense = MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU)
    layers = [
        LayerSpec(
            attention=replace(h.latents(), indexer=indexer),
            attention_norm=norm("attn_norm"),
            mlp=dense if index < h.dense_layers else experts,
            mlp_norm=norm("ffn_norm"),
        )
        for index, indexer in enumerate(indexers or [None] * h.layers)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers[: h.own_layers],
        output_norm=norm("output_norm"),
        mtp=layers[h.own_layers :],
    )


def window_network(
    h: Hyperparameters,
    *,
    causal: bool = True,
    scale: float | None = None,
    logit_softcap: float = 0.0,
) -> Network:
    """Norms before and after each block, and a window in five of six layers.

    If it is not causal, there are no logits.
    """

    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    full_rope = h.rope(RopeLayout.HALF_SPLIT)
    window_rope = h.window_rope(RopeLayout.HALF_SPLIT, _WINDOW_BASE)
    layers = []
    for index, kv_heads in enumerate(h.kv_heads):
        full = (index + 1) % _FULL_EVERY == 0
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=kv_heads,
            head_size=h.head_size,
            rope=full_rope if full else window_rope,
            scale=scale,
            query_norm=norm("attn_q_norm"),
            key_norm=norm("attn_k_norm"),
            causal=causal,
            window=0 if full else h.size("attention.sliding_window"),
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                attention_post_norm=norm("post_attention_norm"),
                mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.GELU_TANH),
                mlp_norm=norm("ffn_norm"),
                mlp_post_norm=norm("post_ffw_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
        embedding_scale=h.width**0.5,
        logits=causal,
        logit_softcap=logit_softcap,
    )


def post_norm_encoder(
    h: Hyperparameters,
    attention: Callable[[int], AttentionSpec],
    mlps: Sequence[Mlp],
    *,
    again_norm: NormSpec | None = None,
    learned_positions: bool = False,
    ranks: bool = True,
) -> Network:
    """An encoder with layer norms after each block; `attention` is given the key heads of a layer.

    `ranks`: files may hold a ranking head.
    """
    layers = [
        LayerSpec(
            attention=attention(kv_heads),
            attention_norm=None,
            attention_stream_norm=layer_norm(h, "attn_output_norm"),
            again_norm=again_norm,
            mlp=mlp,
            mlp_norm=None,
            mlp_stream_norm=layer_norm(h, "layer_output_norm"),
        )
        for kv_heads, mlp in zip(h.kv_heads, mlps, strict=True)
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=None,
        learned_positions=learned_positions,
        token_types=h.token_types,
        embedding_norm=layer_norm(h, "token_embd_norm"),
        logits=False,
        head=h.head() if ranks else None,
    )


def layer_norm(h: Hyperparameters, name: str) -> NormSpec:
    """A layer norm with a bias."""
    return NormSpec(name, h.layer_epsilon, NormKind.LAYER, bias=True)


def relative_encoder(h: Hyperparameters, context: int) -> Network:
    """Attention both ways with relative position buckets; what comes out are hidden rows."""
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=context,
        layers=relative_layers(h, "enc.", h.layers),
        output_norm=NormSpec("enc.output_norm", h.rms_epsilon),
        logits=False,
        stack="enc.",
    )


def relative_layers(
    h: Hyperparameters, stack: str, count: int, *, decoder: bool = False
) -> list[LayerSpec]:
    """Layers with relative position buckets; those of a decoder attend to an encoder's rows too.

    A layer without buckets of its own has those of the first one.
    """

    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    buckets = h.size("attention.relative_buckets_count", most=_MOST_BUCKETS, least=4)
    cross = CrossSpec(heads=h.heads, head_size=h.head_size, scale=1.0, norm=norm("cross_attn_norm"))
    gated = h.has_tensor(f"{stack}blk.0.ffn_gate.weight")
    mlp = MlpSpec(
        width=h.size("feed_forward_length"),
        activation=Activation.GELU_TANH if gated else Activation.RELU,
        gated=gated,
    )
    layers = []
    for layer in range(count):
        own = h.has_tensor(f"{stack}blk.{layer}.attn_rel_b.weight")
        attention = AttentionSpec(
            heads=h.heads,
            kv_heads=h.heads,
            head_size=h.head_size,
            rope=None,
            scale=1.0,
            causal=decoder,
            relative=RelativeSpec(layer=layer if own else 0, buckets=buckets, reach=_REACH),
            seen=SeenPart.DECODED if decoder else SeenPart.ALL,
            output="attn_o",
        )
        layers.append(
            LayerSpec(
                attention=attention,
                attention_norm=norm("attn_norm"),
                cross=cross if decoder else None,
                mlp=mlp,
                mlp_norm=norm("ffn_norm"),
            )
        )
    return layers
