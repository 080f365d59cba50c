"""Recipes of the language models of multimodal models (see recipes.py).

The classes are the whole ones. What reads images is as small as can be; it is saved with a
checkpoint, and is no part of a file.
"""

from typing import Any

from models.recipe import Recipe
from models.recipes_dense import SIZES
from models.recipes_experts import EXPERT_NAMES, GATE_UP, HEAD_NORMS

LANGUAGE = {"language_": ""}  # `model.language_model.`, of which "model." is left out everywhere


def axes(*sections: int, **more: Any) -> dict[str, Any]:
    """Rotary positions, some of whose pairs turn by time, height or width."""
    return {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections), **more}


def keys(config: Any) -> dict[str, Any]:
    """The pairs of each axis."""
    return {"rope.dimension_sections": [*config.rope_parameters["mrope_section"], 0]}


def deepstack_keys(config: Any) -> dict[str, Any]:
    """And the layers after which something is added where there is an image."""
    return {**keys(config), "n_deepstack_layers": len(DEEPSTACK["deepstack_visual_indexes"])}


QWEN2 = {**SIZES, "hidden_size": 64, "num_attention_heads": 4, "bos_token_id": 1, "eos_token_id": 2}
VISION = {"depth": 1, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
DEEPSTACK: dict[str, Any] = {
    **VISION,
    "depth": 3,
    "hidden_size": 16,
    "intermediate_size": 24,
    "out_hidden_size": 60,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 2],
}

MULTIMODAL: dict[str, Recipe] = {
    "qwen2vl": Recipe(
        architecture="qwen2vl",
        model="Qwen2VLForConditionalGeneration",
        config={**QWEN2, "rope_parameters": axes(2, 3, 3)},
        beside={"vision_config": {**VISION, "embed_dim": 16, "hidden_size": 64}},
        metadata=keys,
        names=LANGUAGE,
        left_out=("visual.",),
    ),
    "qwen2vl-tied": Recipe(
        architecture="qwen2vl",
        model="Qwen2_5_VLForConditionalGeneration",
        config={**QWEN2, "rope_parameters": axes(1, 3, 4)},
        beside={
            "tie_word_embeddings": True,
            "vision_config": {
                **VISION,
                "hidden_size": 16,
                "intermediate_size": 24,
                "out_hidden_size": 64,
                "fullatt_block_indexes": [0],
            },
        },
        metadata=keys,
        names=LANGUAGE,
        left_out=("visual.",),
    ),
    "qwen3vl": Recipe(
        architecture="qwen3vl",
        model="Qwen3VLForConditionalGeneration",
        config={
            **SIZES,
            "head_dim": 20,
            "rope_parameters": axes(4, 3, 3, mrope_interleaved=True),
        },
        beside={"vision_config": DEEPSTACK},
        metadata=deepstack_keys,
        names={**HEAD_NORMS, **LANGUAGE},
        left_out=("visual.",),
    ),
    "qwen3vlmoe": Recipe(
        architecture="qwen3vlmoe",
        model="Qwen3VLMoeForConditionalGeneration",
        config={
            **SIZES,
            "head_dim": 20,
            "moe_intermediate_size": 32,
            "num_experts": 9,
            "num_experts_per_tok": 4,
            "rope_parameters": axes(4, 3, 3, mrope_interleaved=True),
        },
        beside={"vision_config": DEEPSTACK},
        metadata=deepstack_keys,
        names={**EXPERT_NAMES, **HEAD_NORMS, **LANGUAGE},
        left_out=("visual.",),
        joined={"mlp.experts.gate_up_proj": GATE_UP},
    ),
}
