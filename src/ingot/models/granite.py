"""Granite: multipliers for the embedding, attention scores, residual additions and logits."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, RopeLayout
from ingot.models.checkpoint import INTERLEAVED, Checkpoint, Value
from ingot.models.checkpoint_parts import multiplier_keys, shared_mlp
from ingot.models.checkpoint_states import attends_everywhere
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.settings import Settings
from ingot.models.spec import AttentionSpec, LayerSpec, MlpSpec, Network, NormSpec


def _shared_keys(s: Settings) -> Mapping[str, Value]:
    return {
        **multiplier_keys(s),
        "feed_forward_length": s.integer("shared_intermediate_size"),
        "expert_count": None,
        "expert_used_count": None,
    }


CHECKPOINTS = (
    Checkpoint(models=("GraniteForCausalLM",), names=INTERLEAVED, keys=multiplier_keys),
    Checkpoint(
        models=("GraniteMoeHybridForCausalLM",),
        accepts=lambda s: attends_everywhere(s) and not s.integer("num_local_experts", default=0),
        names={**INTERLEAVED, **shared_mlp("ffn_gate", "ffn_up", "ffn_down")},
        keys=_shared_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    rope = h.rope(RopeLayout.INTERLEAVED)
    layers = [
        LayerSpec(
            attention=AttentionSpec(
                heads=h.heads,
                kv_heads=kv_heads,
                head_size=h.head_size,
                rope=rope,
                scale=h.number("attention.scale", h.head_size**-0.5),
            ),
            attention_norm=NormSpec("attn_norm", h.rms_epsilon),
            mlp=MlpSpec(width=h.size("feed_forward_length"), activation=Activation.SILU),
            mlp_norm=NormSpec("ffn_norm", h.rms_epsilon),
            residual_scale=h.number("residual_scale", 1.0),
        )
        for kv_heads in h.kv_heads
    ]
    return Network(
        width=h.width,
        vocabulary=h.vocabulary,
        context_length=h.context_length,
        layers=layers,
        output_norm=NormSpec("output_norm", h.rms_epsilon),
        embedding_scale=h.number("embedding_scale", 1.0),
        logit_scale=1 / h.positive("logit_scale", 1.0),
    )
