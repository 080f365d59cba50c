"""Make the fixtures of tests/models with `transformers`, in float64.

    PYTHONPATH=tests python -m models.make_fixtures [name ...]

Needs torch (`pip install torch==2.13.0`) and transformers. Names of tensors and keys
of the metadata are what llama.cpp's converter writes; a recipe adds what is special.
"""

import sys
from inspect import signature
from typing import Any

import numpy as np
import torch
import transformers

from models.recipe import Joined, Recipe
from models.recipes import RECIPES
from models.tiny_models import (
    PAIR_LENGTHS,
    PROMPT,
    VOCABULARY,
    Fixture,
    pair_types,
    stable_values,
)

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

SETTINGS = {
    "intermediate_size": "feed_forward_length",
    "ffn_hidden_size": "feed_forward_length",
    "n_inner": "feed_forward_length",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "norm_eps": "attention.layer_norm_epsilon",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}


def file_name(name: str, recipe: Recipe) -> str:
    """What a parameter is called in a file."""
    name = name.replace("model.norm.", "output_norm.")
    if name == "norm.weight":  # of a model without a head
        name = "output_norm.weight"
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
    if rope["rope_type"] in {"yarn", "longrope"}:
        original = rope["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = original
    return keys


def metadata(config: Any) -> dict[str, int | float | str]:
    """The keys every architecture has."""
    heads = getattr(config, "num_attention_heads", 0)
    own_size = getattr(config, "head_dim", None) if heads else None
    keys: dict[str, int | float | str] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": heads,
    }
    if rope := getattr(config, "rope_parameters", None):
        size = own_size or config.hidden_size // heads
        keys |= rope_metadata(rope.get("full_attention", rope), size)
    if own_size:
        keys |= {"attention.key_length": own_size, "attention.value_length": own_size}
    for setting, key in SETTINGS.items():
        if (value := getattr(config, setting, None)) is not None:
            keys[key] = value
    return keys


def fill(parameters: list[torch.Tensor], name: str, recipe: Recipe, config: Any) -> tuple[int, ...]:
    """Give parameters the values of the tensor of the file that holds them; its shape."""
    shapes = [tuple(p.T.shape if name.endswith(recipe.transposed) else p.shape) for p in parameters]
    stacked = len(parameters) > 1 and name.endswith(("norm.weight", *recipe.stacked))
    rows = [1 if stacked else shape[0] for shape in shapes]
    shape = (sum(rows), *(shapes[0] if stacked else shapes[0][1:]))
    values = stable_values(name, shape)
    for ending, transform in recipe.transforms.items():
        if name.endswith(ending):
            values = transform(values, config)
    for parameter, part in zip(parameters, np.split(values, np.cumsum(rows)[:-1]), strict=True):
        own = torch.from_numpy(np.array(part, order="C"))
        parameter.copy_(own.T if name.endswith(recipe.transposed) else own.reshape(parameter.shape))
    return shape


def fill_joined(parameter: torch.Tensor, layer: str, joined: Joined) -> dict[str, tuple[int, ...]]:
    """Give a parameter the values of the tensors of the file that it joins; their shapes."""
    names = [layer + name for name in joined.names]
    found = joined.shape(*parameter.shape)
    shapes = dict(
        zip(names, found if isinstance(found, list) else [found] * len(names), strict=True)
    )
    values = joined.join(*(stable_values(name, shape) for name, shape in shapes.items()))
    parameter.copy_(torch.from_numpy(np.array(values, order="C")))
    return shapes


def language_config(config: Any) -> Any:
    """The configuration of the language model, which may be a part of a multimodal one."""
    return getattr(config, "text_config", config)


def filled_model(recipe: Recipe) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """A model of transformers with our weights, and the shapes of the tensors of its file."""
    kind = getattr(transformers, recipe.model)
    settings = {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": None,
        **recipe.config,
    }
    if recipe.beside is not None:
        settings = {**recipe.beside, "text_config": settings}
    eager = {
        "attn_implementation": "eager",
        "experts_implementation": "eager",  # the only one in float64
    }
    whole = kind.config_class(**eager, **settings)
    config = language_config(whole)
    pools = "add_pooling_layer" in signature(kind).parameters
    model = kind(whole, add_pooling_layer=False) if pools else kind(whole)
    model = model.double().eval()
    recipe.adjust(model)
    tied = {"lm_head.weight"} if whole.tie_word_embeddings else set()
    shapes: dict[str, tuple[int, ...]] = {}
    stored: dict[str, list[torch.Tensor]] = {}
    for name, parameter in model.state_dict().items():
        if name in tied or any(part in name for part in recipe.left_out):
            continue
        ending = next((end for end in recipe.joined if name.endswith(end)), None)
        if ending is None:
            stored.setdefault(file_name(name, recipe), []).append(parameter)
        else:
            layer = file_name(name.removesuffix(ending), recipe)
            shapes.update(fill_joined(parameter, layer, recipe.joined[ending]))
    shapes |= {name: fill(held, name, recipe, config) for name, held in stored.items()}
    return model, shapes


def make(recipe: Recipe) -> Fixture:
    """Give a model of transformers our weights and ask it for logits, or for hidden rows."""
    model, shapes = filled_model(recipe)
    config = language_config(model.config)
    raw = np.random.PCG64(7).random_raw(recipe.tokens)
    token_ids = [int(word % np.uint64(VOCABULARY)) for word in raw]
    with torch.no_grad():
        if recipe.ranker:
            pairs = [(token_ids[:length], pair_types(length)) for length in PAIR_LENGTHS]
            typed = getattr(config, "type_vocab_size", 1) > 1
            found = [
                model(
                    torch.tensor([ids]),
                    **({"token_type_ids": torch.tensor([types])} if typed else {}),
                ).logits
                for ids, types in pairs
            ]
            logits = torch.cat(found)
        elif recipe.encoder_decoder:
            prompt, written = torch.tensor([token_ids[:PROMPT]]), torch.tensor([token_ids[PROMPT:]])
            logits = model(input_ids=prompt, decoder_input_ids=written).logits[0]
        else:
            results = model(torch.tensor([token_ids]))
            logits = (results.last_hidden_state if recipe.encoder else results.logits)[0]
    keys = {**metadata(config), **recipe.metadata(config)}
    return Fixture(
        architecture=recipe.architecture,
        metadata={key: value for key, value in keys.items() if value is not None},
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
