"""The LoRA adapters of a request: llama-server's `lora` field, or an adapter named as the model."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ingot.api import LLM
from ingot.engine.adapters import AdapterChoice
from ingot.server.errors import ApiError
from ingot.server.sampling_body import Number, ParameterGroup


class AdapterScale(ParameterGroup):
    """How much of an adapter is used; `id` is its place in the list of `/lora-adapters`."""

    id: Annotated[int, Field(ge=0)]
    scale: Number


def scales_by_name(llm: LLM, given: Sequence[AdapterScale], param: str | None) -> dict[str, float]:
    """The scales of adapters by name; an id that is not in the list is an error."""
    names = llm.adapters
    for each in given:
        if each.id >= len(names):
            raise ApiError(
                400, f"there is no adapter {each.id}; {len(names)} are loaded", param=param
            )
    return {names[each.id]: each.scale for each in given}


def adapter_choice(
    llm: LLM, lora: Sequence[AdapterScale] | None, named: str | None
) -> AdapterChoice | None:
    """What a request uses: the adapters of its `lora` field, or else the one its model names.

    None: the scales that are set for all requests.
    """
    return named if lora is None else scales_by_name(llm, lora, "lora")
