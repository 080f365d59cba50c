"""Mistral Small 4: multi-head latent attention with interleaved RoPE, queries scaled by their
positions after the original context; softmax experts with weights that add up to one, shared
experts."""

from collections.abc import Mapping

from ingot.graph.ops import Activation, Gating
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import LATENT_BLOCKS, LATENT_SHAPES, LATENTS, latent_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import latent_network
from ingot.models.settings import Settings
from ingot.models.spec import ExpertsSpec, Network

_SOFTMAX = 1  # a file's number of this gating


def _keys(s: Settings) -> Mapping[str, Value]:
    rope = s.rope or {}
    return {
        **latent_keys(s),
        "expert_gating_func": _SOFTMAX,
        "attention.temperature_scale": rope.get("llama_4_scaling_beta"),
        "attention.temperature_length": rope.get("original_max_position_embeddings"),
    }


CHECKPOINTS = (
    Checkpoint(
        models=("Mistral4ForCausalLM", "Mistral3ForConditionalGeneration"),
        accepts=lambda s: s.find("kv_lora_rank") is not None,
        names=LATENTS,
        blocks=LATENT_BLOCKS,
        shapes=LATENT_SHAPES,
        keys=_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    experts = ExpertsSpec(
        count=h.experts,
        used=h.experts_used,
        width=h.size("expert_feed_forward_length"),
        activation=Activation.SILU,
        gating=h.gating(Gating.SOFTMAX),
        normalize=h.boolean("expert_weights_norm", True),
        scale=h.positive("expert_weights_scale", 1.0),
        groups=h.expert_groups(best=2),
        shared=h.shared_expert(),
    )
    return latent_network(h, experts)
