"""What the bodies of Ollama's endpoints share: the model, `options`, `format` and `keep_alive`.

Bodies come in; sampling parameters and seconds go out. It does not know prompts.
"""

import math
import re
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field

from ingot.api import LLM
from ingot.engine.options import RequestSpeculation
from ingot.sampling import SamplingParams
from ingot.server import structured_outputs
from ingot.server.body_limits import Name
from ingot.server.errors import ApiError
from ingot.server.http.access_log import AccessRecord
from ingot.server.model_facts import can_think
from ingot.server.openai.chat_body import MAX_TOP_LOGPROBS
from ingot.server.options import RequestOptions, ServerOptions
from ingot.server.parameters import check_parameters
from ingot.server.sampling_body import Number, RequestBody, SamplingBody, params_of
from ingot.server.template_body import thinking_variables

Format = Literal["", "json"] | dict[str, Any]
Think = bool | Literal["low", "medium", "high"]

# Options that a running model cannot change, and the flags of `ingot serve` that set them.
_FIXED = MappingProxyType(
    {"num_ctx": "--context", "num_gpu": "--gpu-layers", "num_thread": "--threads"}
)


class OptionsBody(SamplingBody):
    """Sampling parameters; `num_predict` is Ollama's name for `max_tokens`."""

    num_predict: Annotated[int, Field(ge=-2, lt=1 << 31)] | None = None  # 0 or less: no limit
    num_ctx: int | None = None
    num_gpu: int | None = None
    num_thread: int | None = None


class ModelBody(RequestBody):
    """A model, how to run it, and how long it stays loaded."""

    model: Annotated[Name, Field(min_length=1)]
    options: OptionsBody | None = None
    keep_alive: Number | Annotated[str, Field(max_length=64)] | None = None


class TextBody(ModelBody):
    """What `/api/chat` and `/api/generate` share."""

    stream: bool | None = None
    format: Format | None = None
    think: Think | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @property
    def priority(self) -> int:
        """Its place among the requests that wait; lower values are admitted first."""
        return (self.options and self.options.priority) or 0

    @property
    def speculation(self) -> RequestSpeculation:
        """Whether tokens may be guessed."""
        return (self.options and self.options.speculation) or "auto"


def check_body(body: ModelBody, record: AccessRecord, options: ServerOptions) -> None:
    """Refuse parameters and options that would change the answer, or note warnings about them."""
    for name in structured_outputs.FIELDS:
        if (body.model_extra or {}).get(name):
            raise ApiError(
                400, f"{name} is not supported here: put it in options, or use format", param=name
            )
    check_parameters(body, record, options)
    if body.options is None:
        return
    ignored, warnings = record.ignored, record.warnings
    check_parameters(body.options, record, options)
    fixed = [name for name in _FIXED if getattr(body.options, name) is not None]
    record.ignored = [*ignored, *record.ignored, *fixed]
    record.warnings = [
        *warnings,
        *record.warnings,
        *(
            f"'{name}' cannot be changed while the server runs: {_FIXED[name]} of `ingot serve` "
            "sets it. It was ignored."
            for name in fixed
        ),
    ]


def params_of_body(body: TextBody, options: RequestOptions) -> SamplingParams:
    """The sampling parameters that a body asks for."""
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    given = body.options or OptionsBody()
    tokens = given.num_predict
    return params_of(
        given,
        options,
        max_tokens=tokens if tokens is not None and tokens > 0 else None,
        response_format=_response_format(body.format),
        logprobs=body.logprobs or None,
        top_logprobs=body.top_logprobs,
    )


def _response_format(given: Format | None) -> dict[str, object] | None:
    """The format in OpenAI's form."""
    if not given:
        return None
    if given == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"schema": given}}


def thinking_options(think: Think | None) -> dict[str, object]:
    """Variables for the chat template."""
    if think is None:
        return {}
    options = thinking_variables(thinks=bool(think))
    return options | ({"reasoning_effort": think} if isinstance(think, str) else {})


def check_thinking(llm: LLM, body: TextBody) -> None:
    """Refuse a body that asks a model for reasoning that it cannot write."""
    if body.think and not can_think(llm.reply_style):
        raise ApiError(400, f"{body.model!r:.60} does not support thinking", param="think")


_UNITS = MappingProxyType(
    {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
)
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_DURATION = re.compile(rf"([+-]?)((?:{_PART.pattern})+|\d{{1,12}})", re.ASCII)


def keep_alive_seconds(given: float | str | None) -> float:
    """Seconds that a model stays loaded after its last request; infinity for no limit.

    Ollama takes a number of seconds, or a text like `1h30m`. A negative one means no limit.
    """
    if given is None:
        return math.inf
    if isinstance(given, str):
        found = _DURATION.fullmatch(given.strip())
        if found is None:
            raise ApiError(
                400,
                f"keep_alive is {given!r:.60}; it must be a number of seconds or a duration "
                "like '5m' or '1h30m'",
                param="keep_alive",
            )
        parts = _PART.findall(found[2])
        seconds = sum(float(count) * _UNITS[unit] for count, unit in parts)
        given = (seconds if parts else float(found[2])) * (-1 if found[1] == "-" else 1)
    return math.inf if given < 0 else float(given)
