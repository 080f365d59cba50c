"""How much a request's body may hold: the limits, and list types that enforce them.

Validation of a list ends at its first wrong element. `http.body` checks the number of values and
the depth before a body is parsed.
"""

from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

MAX_VALUES = 150_000  # in a body; names in objects count as values
MAX_DEPTH = 128  # of nested lists and objects
MAX_NUMBER_LENGTH = 64  # characters
MAX_TOKEN_IDS = 1 << 17  # in a prompt that is given as token ids
MAX_PROMPTS = 2048
MAX_ITEMS = 10_000
MAX_TOOLS = 1024
MAX_SHORT_LIST = 64
MAX_NAME_LENGTH = 256  # characters

T = TypeVar("T")
K = TypeVar("K")


def _check_length(given: T) -> T:
    """Refuse an object for its length before its entries are validated."""
    if isinstance(given, dict) and len(given) > MAX_ITEMS:
        raise PydanticCustomError("too_long", f"an object has at most {MAX_ITEMS} entries here")
    return given


TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
Tokens = Annotated[list[TokenId], Field(fail_fast=True, min_length=1, max_length=MAX_TOKEN_IDS)]
PromptList = Annotated[list[T], Field(fail_fast=True, min_length=1, max_length=MAX_PROMPTS)]
# Messages, parts of a message, biases.
Many = Annotated[list[T], Field(fail_fast=True, max_length=MAX_ITEMS)]
Mapped = Annotated[dict[K, T], BeforeValidator(_check_length), Field(max_length=MAX_ITEMS)]
Tools = Annotated[list[T], Field(fail_fast=True, max_length=MAX_TOOLS)]
# Stop sequences, samplers.
Few = Annotated[list[T], Field(fail_fast=True, max_length=MAX_SHORT_LIST)]
