"""DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash: multi-head latent attention with interleaved
RoPE, experts in groups, shared experts, first layers dense."""

from collections.abc import Mapping

from ingot.graph.ops import Gating
from ingot.models.checkpoint import Checkpoint, Value
from ingot.models.checkpoint_parts import LATENT_BLOCKS, LATENT_SHAPES, LATENTS, latent_keys
from ingot.models.hyperparameters import Hyperparameters
from ingot.models.networks import grouped_experts, latent_network
from ingot.models.settings import Settings
from ingot.models.spec import Network

_SOFTMAX, _SIGMOID = 1, 2  # a file's numbers of these gatings


def _keys(s: Settings) -> Mapping[str, Value]:
    return {**latent_keys(s), "expert_gating_func": _SOFTMAX}


def _corrected_keys(s: Settings) -> Mapping[str, Value]:
    return {**latent_keys(s), "expert_gating_func": _SIGMOID}


CHECKPOINTS = (
    Checkpoint(
        models=("DeepseekV2ForCausalLM",),
        names=LATENTS,
        blocks=LATENT_BLOCKS,
        shapes=LATENT_SHAPES,
        keys=_keys,
    ),
    Checkpoint(
        models=(
            "DeepseekV3ForCausalLM",
            "Glm4MoeLiteForCausalLM",
            "KimiK25ForConditionalGeneration",
            "KimiVLForConditionalGeneration",
        ),
        names=LATENTS,
        blocks=LATENT_BLOCKS,
        shapes=LATENT_SHAPES,
        keys=_corrected_keys,
    ),
)


def network(h: Hyperparameters) -> Network:
    return latent_network(h, grouped_experts(h, Gating.SOFTMAX))
