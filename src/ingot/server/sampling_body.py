"""SamplingBody: the sampling parameters in a request's body, made from `SamplingParams`.

Types, ranges and aliases come from there. A null means the default. It does not know endpoints.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from ingot.engine.options import RequestSpeculation
from ingot.sampling import SamplingParams
from ingot.sampling.checks import OPTIONAL_RANGES, RANGES, Range
from ingot.sampling.params import ALIASES
from ingot.server import structured_outputs
from ingot.server.body_limits import Few, Many, Mapped, Name, TokenId
from ingot.server.errors import ApiError
from ingot.server.options import RequestOptions

MAX_STOP_LENGTH = 1024


class Body(BaseModel):
    """A part of a body: strict JSON types; unknown names are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class ParameterGroup(Body):
    """An object of parameters: it keeps those it does not know, for `check_parameters`."""

    model_config = ConfigDict(extra="allow")


class RequestBody(Body):
    """A whole body: it keeps the parameters that it does not know, for `check_parameters`."""

    model_config = ConfigDict(extra="allow")


class TextRequestBody(RequestBody):
    """A body that asks for texts, which wait for their turn."""

    # vLLM's; of the requests that wait, those with the lowest value are admitted first
    priority: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)] | None = None
    speculation: RequestSpeculation | None = None  # "auto": as the server was started


StopSequence = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Bias = Literal[False] | Number  # of a token; False bans it

_OTHERS: dict[str, Any] = {
    "stop": StopSequence | Few[StopSequence],
    "stop_token_ids": Many[TokenId],
    "ignore_eos": bool,
    "samplers": Few[Name],
    "dry_sequence_breakers": Few[StopSequence],
    "logit_bias": Mapped[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Bias],
    **structured_outputs.FIELDS,
}
# Endpoints have their own fields for these.
_ELSEWHERE = ("n_probs", "logprobs", "processors", "post_sampling_probs")
# llama.cpp's clients send -1 for "any" and "no limit".
_LIMITS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict")
_MINUS_ONE = ("seed", *_LIMITS)


def _number(name: str, allowed: Range) -> Any:
    low = -1 if name in _MINUS_ONE else allowed.low
    kind = int if allowed.whole else float
    bounds: dict[str, Any] = {"gt" if allowed.low_open else "ge": kind(low)}
    if not math.isinf(allowed.high):
        bounds["le"] = kind(allowed.high)
    if kind is float:
        bounds["allow_inf_nan"] = False
    return Annotated[kind, Field(**bounds)]


def _fields() -> dict[str, Any]:
    ranges = {**RANGES, **OPTIONAL_RANGES}
    types = {name: _number(name, allowed) for name, allowed in ranges.items()}
    types |= _OTHERS
    types |= {
        alias: _number(alias, ranges[name]) for alias, name in ALIASES.items() if name in ranges
    }
    return {name: (kind | None, None) for name, kind in types.items() if name not in _ELSEWHERE}


if TYPE_CHECKING:

    class SamplingBody(TextRequestBody):
        """A body with all sampling parameters."""
else:
    SamplingBody = create_model("SamplingBody", __base__=TextRequestBody, **_fields())

_NAMES = SamplingBody.model_fields.keys() - TextRequestBody.model_fields.keys()


def params_of(
    body: BaseModel,
    options: RequestOptions,
    *,
    default_tokens: int | None = None,
    **more: object,
) -> SamplingParams:
    """The sampling parameters of a body and of `more`, within the server's limits.

    `default_tokens` is `max_tokens` if the body does not set it.
    """
    names = _NAMES & type(body).model_fields.keys()
    given = {name: getattr(body, name) for name in names}
    grammar = structured_outputs.grammar_of(given)
    given = {name: given[name] for name in given.keys() - structured_outputs.FIELDS}
    given["grammar"] = grammar
    given |= {name: value for name, value in more.items() if value is not None and value != []}
    base = SamplingParams.from_names(options.sampling, max_tokens=None)
    params = base.with_names(given)
    if params.max_tokens is None:
        most = min(options.max_tokens or math.inf, _default(given, default_tokens))
        if most < math.inf:
            params = replace(params, max_tokens=max(int(most), params.min_tokens))
    elif options.max_tokens is not None and params.max_tokens > options.max_tokens:
        raise ApiError(
            400,
            f"max_tokens is {params.max_tokens}; this server allows at most {options.max_tokens}",
            param="max_tokens",
        )
    if options.time_limit is not None:
        limit = min(options.time_limit, params.time_limit or math.inf)
        params = replace(params, time_limit=limit)
    return params


def _default(given: dict[str, object], tokens: int | None) -> float:
    """The default for `max_tokens`; -1 asks for no limit."""
    no_limit = any(given.get(name) == -1 for name in _LIMITS)
    return math.inf if tokens is None or no_limit else tokens
