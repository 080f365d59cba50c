"""Recipes of decoders without experts, of 2025 and later (see recipes.py)."""

from models.recipe import LLAMA3, TURNED_PAIRS, Recipe, changed, llama3_factors
from models.recipes_dense import HEAD_NORMS, PRE_AND_POST_NORMS, SIZES, rope

EXAONE4 = Recipe(
    architecture="exaone4",
    model="Exaone4ForCausalLM",
    config={
        **SIZES,
        "hidden_size": 96,
        "head_dim": 16,
        "sliding_window": None,
        "layer_types": ["full_attention"] * SIZES["num_hidden_layers"],
        "rope_parameters": LLAMA3,
    },
    names={**PRE_AND_POST_NORMS, **HEAD_NORMS},
    constants=llama3_factors,
)

RECENT: dict[str, Recipe] = {
    "ernie4_5": Recipe(
        architecture="ernie4_5",
        model="Ernie4_5ForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope(500000.0)},
    ),
    "seed_oss": Recipe(
        architecture="seed_oss",
        model="SeedOssForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope(1e7)},
        names={"post_attention_layernorm": "post_attention_norm"},
    ),
    "arcee": Recipe(
        architecture="arcee",
        model="ArceeForCausalLM",
        config={**SIZES, "head_dim": 14, "rope_parameters": rope()},
        transforms=TURNED_PAIRS,
    ),
    "cohere2": Recipe(
        architecture="cohere2",
        model="Cohere2ForCausalLM",
        config={
            **SIZES,
            "num_hidden_layers": 5,
            "sliding_window": 11,
            "logit_scale": 0.4,
            "rope_parameters": rope(50000.0),
        },
        metadata=lambda c: {"logit_scale": c.logit_scale, "rope.scaling.type": "none"},
    ),
    "exaone4": EXAONE4,
    "exaone4-window": changed(
        EXAONE4, {"num_hidden_layers": 5, "sliding_window": 11, "layer_types": None}
    ),
}
