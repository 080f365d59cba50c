"""What a recipe of a tiny model says (see recipes.py), and orders of rows that recipes share."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Transform = Callable[[Floats, Any], Floats]  # values of the file, configuration -> of the model
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
    "rope_theta": 500.0,
}


def interleaved(values: Floats, heads: int) -> Floats:
    """Undo the converter's order of rows, in which elements that turn together are neighbours."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


# What Llama's converter does, and that of many others.
TURNED_PAIRS: Mapping[str, Transform] = {
    f"attn_{which}.{kind}": transform
    for kind in ("weight", "bias")
    for which, transform in {
        "q": lambda w, c: interleaved(w, c.num_attention_heads),
        "k": lambda w, c: interleaved(w, c.num_key_value_heads),
    }.items()
}


def llama3_factors(config: Any) -> dict[str, Floats]:
    """What the converter writes for Llama 3's long contexts: a divisor for each pair."""
    rope = config.rope_parameters
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    factors = []
    for pair in range(config.head_dim // 2):
        length = 2 * math.pi * rope["rope_theta"] ** (2 * pair / config.head_dim)
        if length < original / high:
            factors.append(1.0)
        elif length > original / low:
            factors.append(factor)
        else:
            smooth = (original / length - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return {"rope_freqs.weight": np.array(factors, np.float32)}


def long_rope_keys(config: Any) -> dict[str, int | float | str]:
    """How much larger cosines and sines become."""
    original = config.rope_parameters["original_max_position_embeddings"]
    scale = config.max_position_embeddings / original
    factor = math.sqrt(1 + math.log(scale) / math.log(original))
    return {"rope.scaling.attn_factor": factor, "attention.sliding_window": 0}


def long_rope_factors(config: Any) -> dict[str, Floats]:
    """The factors as tensors."""
    return {
        f"rope_factors_{name}.weight": np.array(
            config.rope_parameters[f"{name}_factor"], np.float32
        )
        for name in ("short", "long")
    }


@dataclass(frozen=True)
class Joined:
    """A parameter of the model that is several tensors of the file, or another shape of one."""

    names: tuple[str, ...]  # in the file, behind `blk.N.`
    # of all of them, from the parameter's; or a list with one for each
    shape: Callable[..., tuple[int, ...] | list[tuple[int, ...]]]
    join: Callable[..., Floats]  # their values -> the parameter's


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to make one tiny model.

    Parameters that the names give the same name are one tensor of the file: rows in the model's
    order, or for norms one row each.
    """

    architecture: str
    model: str  # its class in transformers
    config: Mapping[str, Any]
    beside: Mapping[str, Any] | None = None  # of a multimodal model, beside its language model's
    metadata: Callable[[Any], Mapping[str, Any]] = lambda _: {}
    # beyond the usual, None for a key that is not there
    names: Mapping[str, str] = field(default_factory=dict)  # parts of names that differ
    transforms: Mapping[str, Transform] = field(default_factory=dict)  # by the file's names
    joined: Mapping[str, Joined] = field(default_factory=dict)  # by the ends of the model's names
    transposed: tuple[str, ...] = ()  # by the file's names
    stacked: tuple[str, ...] = ()  # names in the file of parameters that lie in it one by one
    left_out: tuple[str, ...] = ()  # by parts of the model's names: what is no tensor of the file
    constants: Callable[[Any], dict[str, Floats]] = lambda _: {}
    adjust: Callable[[Any], None] = lambda _: None  # the model, where files mean another one
    encoder: bool = False  # what counts are hidden rows
    ranker: bool = False  # what counts are scores of texts
    encoder_decoder: bool = False  # the logits are those of tokens after the prompt
    tokens: int = 70


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Make a recipe with a few settings of its configuration changed."""
    return replace(recipe, config={**recipe.config, **changes})
