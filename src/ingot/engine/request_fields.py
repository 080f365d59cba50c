"""RequestFields: what a request takes by name, typed for editors and type checkers.

In: a `SamplingParams`, or keyword arguments. Out: the parameters, and the other arguments of
`InferenceEngine.submit_request`, which says what they do.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ingot.engine.adapters import AdapterChoice
from ingot.engine.engine import Prompt
from ingot.engine.options import RequestSpeculation
from ingot.errors import SamplingError, UnknownParameterError
from ingot.sampling import SamplingParams
from ingot.sampling.fields import SamplingFields
from ingot.sampling.params import ALIASES


class RequestFields(SamplingFields, total=False):
    """Keyword arguments of `LLM.generate`, `stream`, `chat` and the like."""

    negative_prompt: Prompt | None
    cfg_scale: float
    heal: bool
    context_overflow: Literal["error", "stop", "shift"]
    keep: int
    reuse: bool
    adapter: AdapterChoice | None
    priority: int
    speculation: RequestSpeculation


_DEFAULT = SamplingParams()
_OTHERS = RequestFields.__annotations__.keys() - SamplingFields.__annotations__.keys()


def read_fields(
    params: SamplingParams | None, fields: RequestFields, base: SamplingParams = _DEFAULT
) -> tuple[SamplingParams, dict[str, Any]]:
    """The sampling parameters of a request, and the arguments that are something else.

    Fields change `base`.
    """
    named: dict[str, Any] = dict(fields)
    others = {name: named.pop(name) for name in _OTHERS & named.keys()}
    if params is None:
        if _is_unlimited(named):
            base = replace(base, max_tokens=None)
        try:
            return base.with_names(named), others
        except UnknownParameterError as error:
            raise UnknownParameterError(error.name, {*error.known, *_OTHERS}) from None
    if not isinstance(params, SamplingParams):
        raise SamplingError("params", params, "SamplingParams; or pass its fields by name")
    if named:
        name = min(named)
        raise SamplingError(name, named[name], "a field of params, because params is given")
    return params, others


def _is_unlimited(fields: Mapping[str, Any]) -> bool:
    """Whether `max_tokens=None` was passed, which is not the same as nothing."""
    return any(
        value is None and ALIASES.get(name, name) == "max_tokens" for name, value in fields.items()
    )
