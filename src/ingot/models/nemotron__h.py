"""Nemotron-H, Nemotron Nano 2: each layer is Mamba 2, attention without positions, or a
feed-forward network with a squared ReLU."""

from collections.abc import Mapping

from ingot.graph.ops import Activation
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_states import (
    BACKBONE,
    DECAY,
    SINGLE_BLOCKS,
    block_kinds,
    mamba2_shapes,
    single_block_keys,
)
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def _has_experts(s: Settings) -> bool:
    return any(kind in ("moe", "E") for kind in block_kinds(s))


def _keys(s: Settings) -> Mapping[str, Value]:
    return {
        **single_block_keys(s, ("mlp", "-"), s.integer("intermediate_size")),
        "expert_count": None,
        "expert_used_count": None,
        "expert_feed_forward_length": None,
    }


CHECKPOINTS = (
    Checkpoint(
        models=("NemotronHForCausalLM",),
        accepts=lambda s: not _has_experts(s),
        layers="backbone.layers",
        names=SINGLE_BLOCKS,
        outer=BACKBONE,
        values=DECAY,
        shapes=mamba2_shapes("n_groups"),
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    def norm(name: str) -> NormSpec:
        return NormSpec(name, h.rms_epsilon)

    def attention(kv_heads: int) -> AttentionSpec:
        return AttentionSpec(heads=h.heads, kv_heads=kv_heads, head_size=h.head_size, rope=None)

    def mlp(width: int) -> MlpSpec:
        return MlpSpec(width=width, activation=Activation.RELU_SQUARED, gated=False)

    states = h.mamba2(norm("ssm_norm"))
    layers = []
    for kv_heads, width in zip(
        h.hybrid_kv_heads, h.per_layer("feed_forward_length", least=0), strict=True
    ):
        mixer = attention(kv_heads) if kv_heads else None if width else states
        layers.append(
            LayerSpec(
                attention=mixer,
                attention_norm=norm("attn_norm") if mixer else None,
                mlp=None if mixer else mlp(width),
                mlp_norm=None if mixer else norm("attn_norm"),
            )
        )
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=norm("output_norm"),
    )
