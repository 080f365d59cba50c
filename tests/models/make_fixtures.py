"""Make the fixtures of tests/models with `transformers`, in float64.

    PYTHONPATH=tests python -m models.make_fixtures [name ...]

Needs torch (`pip install torch==2.13.0`) and transformers. Names of tensors and keys
of the metadata are what llama.cpp's converter writes; a recipe adds what is special.
"""

import sys
from typing import Any

import numpy as np
import torch
import transformers

from models.recipes import RECIPES, Recipe
from models.tiny_models import Fixture, stable_values

VOCABULARY = 61
CONTEXT = 256
NAMES = {
    "model.": "",
    "layers.": "blk.",
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def file_name(name: str, recipe: Recipe) -> str:
    """What a parameter is called in a file."""
    if name == "model.norm.weight":
        return "output_norm.weight"
    for part, replacement in {**NAMES, **recipe.names}.items():
        name = name.replace(part, replacement)
    return name


def rope_metadata(rope: dict[str, Any], head_size: int) -> dict[str, int | float | str]:
    """The keys that say how positions turn."""
    keys: dict[str, int | float | str] = {
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_size * rope.get("partial_rotary_factor", 1.0)),
    }
    if rope["rope_type"] in {"linear", "yarn"}:
        keys["rope.scaling.type"] = rope["rope_type"]
        keys["rope.scaling.factor"] = rope["factor"]
    if rope["rope_type"] == "yarn":
        original = rope["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = original
    return keys


def metadata(config: Any) -> dict[str, int | float | str]:
    """The keys every architecture has."""
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    rope = config.rope_parameters
    keys: dict[str, int | float | str] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_size,
        "attention.value_length": head_size,
        **rope_metadata(rope.get("full_attention", rope), head_size),
    }
    for key, setting in {
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "attention.layer_norm_epsilon": "layer_norm_eps",
    }.items():
        if (epsilon := getattr(config, setting, None)) is not None:
            keys[key] = epsilon
    return keys


def make(recipe: Recipe) -> Fixture:
    """Give a model of transformers our weights and ask it for logits."""
    kind = getattr(transformers, recipe.model)
    config = kind.config_class(
        vocab_size=VOCABULARY,
        max_position_embeddings=CONTEXT,
        attn_implementation="eager",
        pad_token_id=None,
        **recipe.config,
    )
    model = kind(config).double().eval()
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    shapes = {}
    for name, parameter in model.state_dict().items():
        if name in tied:
            continue
        stored = file_name(name, recipe)
        shapes[stored] = tuple(parameter.shape)
        values = stable_values(stored, shapes[stored])
        for ending, transform in recipe.transforms.items():
            if stored.endswith(ending):
                values = transform(values, config)
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    raw = np.random.PCG64(7).random_raw(recipe.tokens)
    token_ids = [int(word % np.uint64(VOCABULARY)) for word in raw]
    with torch.no_grad():
        logits = model(torch.tensor([token_ids])).logits[0]
    return Fixture(
        architecture=recipe.architecture,
        metadata={**metadata(config), **recipe.metadata(config)},
        shapes=shapes,
        constants=recipe.constants(config),
        token_ids=token_ids,
        logits=logits.numpy().astype(np.float32),
    )


def main() -> None:
    """Make the named fixtures, or all."""
    for name in sys.argv[1:] or RECIPES:
        fixture = make(RECIPES[name])
        fixture.save(name)
        print(f"{name}: {len(fixture.shapes)} tensors, logits {fixture.logits.std():.2f} wide")


if __name__ == "__main__":
    main()
