"""The body of a completion: llama-server's prompts and sampling fields.

A list of numbers is one prompt, and so is a list of numbers and texts; a list of texts, or one
that holds lists, is several. In texts, the names of control tokens are these tokens.
"""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ingot.api import LLM
from ingot.errors import SamplingError
from ingot.sampling import SamplingParams
from ingot.sampling.checks import MOST_PROBABILITIES
from ingot.server.body_limits import (
    MAX_PROMPTS,
    MAX_SHORT_LIST,
    MAX_TOKEN_IDS,
    Few,
    Many,
    Mapped,
    Name,
    TokenId,
    Tokens,
)
from ingot.server.errors import ApiError
from ingot.server.options import RequestOptions
from ingot.server.request_adapters import AdapterScale
from ingot.server.sampling_body import MAX_STOP_LENGTH, Bias, Number, SamplingBody, params_of


class TextPrompt(BaseModel):
    """A text in an object, from clients that may also send images."""

    model_config = ConfigDict(strict=True, extra="ignore")

    prompt_string: str
    multimodal_data: Few[str] | None = None


T = TypeVar("T")
_Listed = Annotated[list[T], Field(fail_fast=True, min_length=1, max_length=MAX_TOKEN_IDS)]
_Mixed = Tokens | _Listed[TokenId | str]
OnePrompt = str | TextPrompt | _Mixed
Prompts = str | TextPrompt | Tokens | _Listed[TokenId | str | TextPrompt | _Mixed]


def prompt_list(given: Prompts) -> list[OnePrompt]:
    """All prompts of a body."""
    if not isinstance(given, list):
        return [given]
    numbers = any(isinstance(part, int) for part in given)
    others = any(isinstance(part, (list, TextPrompt)) for part in given)
    if numbers and others:
        raise ApiError(400, "a list of prompts cannot also hold token ids", param="prompt")
    if numbers:
        return [[part for part in given if isinstance(part, (int, str))]]
    prompts = [part for part in given if not isinstance(part, int)]
    if len(prompts) > MAX_PROMPTS:
        raise ApiError(
            400,
            f"{len(prompts)} prompts were sent; at most {MAX_PROMPTS} are allowed",
            param="prompt",
        )
    return prompts


def tokens_of(llm: LLM, prompt: OnePrompt) -> list[int]:
    """The tokens of one prompt; BOS is added if it begins with text, not with tokens."""
    if isinstance(prompt, TextPrompt):
        if prompt.multimodal_data:
            raise ApiError(400, "multimodal_data is not supported, only text", param="prompt")
        prompt = prompt.prompt_string
    parts = [prompt] if isinstance(prompt, str) else prompt
    tokens: list[int] = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            tokens += llm.tokenizer.encode(part, add_special=number == 0, parse_special=True)
        else:
            tokens.append(part)
    return tokens


_Stop = Annotated[str, Field(max_length=MAX_STOP_LENGTH)]  # an empty one is ignored
_Pair = Annotated[tuple[TokenId | str, Bias], Field(strict=False)]
_Count = Annotated[int, Field(ge=1, le=128)]

# llama.cpp's letters for samplers.
_LETTERS = {
    "d": "dry",
    "e": "penalties",
    "i": "infill",
    "k": "top_k",
    "m": "min_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "t": "temperature",
    "x": "xtc",
    "y": "typical_p",
}


class LlamaBody(SamplingBody):
    """Sampling parameters and options of a completion."""

    model: str | None = None
    stream: bool | None = None
    temperature: Number | None = None  # negative values mean 0
    samplers: Few[Name] | Annotated[str, Field(max_length=MAX_SHORT_LIST)] | None = None
    stop: Few[_Stop] | _Stop | None = None
    logit_bias: Many[_Pair] | Mapped[str, Bias] | None = None
    n_probs: Annotated[int, Field(ge=0, le=MOST_PROBABILITIES)] | None = None
    post_sampling_probs: bool | None = None
    t_max_predict_ms: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None
    n_cmpl: _Count | None = None
    id_slot: Annotated[int, Field(ge=-1)] | None = None
    cache_prompt: bool | None = None
    n_keep: Annotated[int, Field(ge=-1)] | None = None
    return_tokens: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    response_fields: Few[Name] | None = None
    lora: Few[AdapterScale] | None = None


def sampling_params(body: LlamaBody, llm: LLM, options: RequestOptions) -> SamplingParams:
    """The sampling parameters of a body; some depend on the model's vocabulary."""
    slots = llm.engine.max_running
    if body.id_slot is not None and body.id_slot >= slots:
        raise ApiError(400, f"id_slot is {body.id_slot}; there are {slots} slots", param="id_slot")
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    time = body.t_max_predict_ms
    probs = body.n_probs or 0
    return params_of(
        body,
        options,
        temperature=None if body.temperature is None else max(body.temperature, 0.0),
        samplers=_samplers(body.samplers),
        stop=[text for text in stop if text],
        logit_bias=_biases(body.logit_bias, llm),
        logprobs=probs or None,
        post_sampling_probs=bool(body.post_sampling_probs and probs),
        t_max_predict_ms=time if time and time > 0 else None,
    )


def _samplers(given: list[str] | str | None) -> list[str] | None:
    if not isinstance(given, str):
        return given
    if unknown := next((letter for letter in given if letter not in _LETTERS), None):
        raise SamplingError("samplers", unknown, f"of the letters {''.join(_LETTERS)}")
    return [_LETTERS[letter] for letter in given]


def _biases(
    given: list[tuple[int | str, float]] | dict[str, float] | None, llm: LLM
) -> dict[int, float] | None:
    """The bias of each token; a text stands for all of its tokens, False bans a token."""
    if given is None:
        return None
    pairs = given.items() if isinstance(given, dict) else given
    named = isinstance(given, dict)
    biases: dict[int, float] = {}
    for what, bias in pairs:
        if isinstance(what, str) and named and what.isdecimal() and what.isascii():
            biases[int(what)] = bias
        elif isinstance(what, str):
            tokens = llm.tokenizer.encode(what, add_special=False)
            biases.update(dict.fromkeys(tokens, bias))
        else:
            biases[what] = bias
    return biases
