"""`generation_settings`: sampling parameters under llama-server's names."""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from ingot.sampling import SamplingParams
from ingot.server.request_adapters import AdapterScale


class TokenBias(BaseModel):
    """A token and the bias of its logit; False bans it."""

    token: int
    bias: float | Literal[False]


class GenerationSettings(BaseModel):
    """The parameters of a completion; `max_tokens` and `n_predict` are -1 without a limit."""

    seed: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    typical_p: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: list[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    stop: list[str]
    max_tokens: int
    n_predict: int
    n_keep: int = 0
    n_discard: int = 0
    ignore_eos: bool
    stream: bool
    logit_bias: list[TokenBias]
    n_probs: int
    min_keep: int
    grammar: str
    samplers: list[str]
    timings_per_token: bool
    post_sampling_probs: bool
    lora: list[AdapterScale]  # the adapters in use, by their places in `/lora-adapters`


_SAME = GenerationSettings.model_fields.keys() & SamplingParams.__dataclass_fields__.keys()


def _first(*seeds: int | None) -> int:
    return next((seed for seed in seeds if seed is not None), -1)


def settings_of(
    params: SamplingParams,
    *,
    seed: int | None = None,
    stream: bool = False,
    timings_per_token: bool = False,
    adapters: Mapping[int, float] | None = None,
) -> GenerationSettings:
    """The settings of a completion; `seed` is the one in use, -1 if none is yet.

    `adapters` are the scales of LoRA adapters by their places in the list.
    """
    most = -1 if params.max_tokens is None else params.max_tokens
    same: dict[str, Any] = {name: getattr(params, name) for name in _SAME}
    renamed: dict[str, Any] = {
        "seed": _first(seed, params.seed),
        "max_tokens": most,
        "n_predict": most,
        "stream": stream,
        "timings_per_token": timings_per_token,
        "lora": [AdapterScale(id=place, scale=scale) for place, scale in (adapters or {}).items()],
        "grammar": "" if params.grammar is None else params.grammar.source,
        "logit_bias": [
            TokenBias(token=token, bias=math.isfinite(bias) and bias)
            for token, bias in params.logit_bias.items()
        ],
    }
    return GenerationSettings(**(same | renamed))
