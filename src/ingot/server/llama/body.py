"""What the body of a completion may say, in llama-server's names and forms."""

from typing import Annotated, Literal

from pydantic import Field

from ingot.api import LLM
from ingot.errors import SamplingError
from ingot.sampling import SamplingParams
from ingot.sampling.checks import MOST_PROBABILITIES
from ingot.server.body_limits import MOST_FEW, Few, Many, Mapped, Name, TokenId
from ingot.server.errors import ApiError
from ingot.server.options import ServerOptions
from ingot.server.sampling_body import LONGEST_STOP, Number, SamplingBody, params_of

_Stop = Annotated[str, Field(max_length=LONGEST_STOP)]  # an empty one is none
_Bias = Literal[False] | Number
_Pair = Annotated[tuple[TokenId | str, _Bias], Field(strict=False)]
_Count = Annotated[int, Field(ge=1, le=128)]

# The samplers by the letters that llama.cpp's command line has for them.
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
    """How prompts are to be continued."""

    model: str | None = None
    stream: bool | None = None
    temperature: Number | None = None  # below 0: 0
    samplers: Few[Name] | Annotated[str, Field(max_length=MOST_FEW)] | None = None
    stop: Few[_Stop] | _Stop | None = None
    logit_bias: Many[_Pair] | Mapped[str, _Bias] | None = None
    n_probs: Annotated[int, Field(ge=0, le=MOST_PROBABILITIES)] | None = None
    post_sampling_probs: bool | None = None
    t_max_predict_ms: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None
    n_cmpl: _Count | None = None
    id_slot: Annotated[int, Field(ge=-1)] | None = None
    cache_prompt: bool | None = None
    return_tokens: bool | None = None
    timings_per_token: bool | None = None
    response_fields: Few[Name] | None = None


def asked(body: LlamaBody, llm: LLM, options: ServerOptions) -> SamplingParams:
    """The parameters that a body says; some depend on the model's vocabulary."""
    slots = llm.engine.options.max_running
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
    """The bias of each token; a text stands for all of its tokens, False for a ban."""
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
