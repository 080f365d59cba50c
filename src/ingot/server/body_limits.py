"""What a request's body may hold: the limits, and the check that comes before it is parsed.

Parsing and validating a body keep every other thread of the process waiting, the one that writes
texts among them. How long they take depends on the number of values, far more than on the bytes:
so the values are counted first, natively and without making any. Lists have bounds of their own,
and their validation ends with the first element that is wrong. It does not know endpoints.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ingot._native import JsonFault, scan_json
from ingot.server.errors import ApiError

MOST_VALUES = 150_000  # of a body; names in objects are values, too
MOST_DEPTH = 128  # of lists and objects within each other
LONGEST_NUMBER = 64  # characters
MOST_TOKENS = 1 << 17  # of a prompt that is given as token ids
MOST_PROMPTS = 2048
MOST_MANY = 10_000
MOST_TOOLS = 1024
MOST_FEW = 64
LONGEST_NAME = 256  # characters

T = TypeVar("T")
K = TypeVar("K")


def _not_too_many(given: T) -> T:
    """Refuse an object for its length before its entries, each of which may be wrong."""
    if isinstance(given, dict) and len(given) > MOST_MANY:
        raise PydanticCustomError("too_long", f"an object has at most {MOST_MANY} entries here")
    return given


TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Tokens = Annotated[list[TokenId], Field(fail_fast=True, min_length=1, max_length=MOST_TOKENS)]
Several = Annotated[
    list[T], Field(fail_fast=True, min_length=1, max_length=MOST_PROMPTS)
]  # prompts
Many = Annotated[list[T], Field(fail_fast=True, max_length=MOST_MANY)]  # messages, parts, biases
Mapped = Annotated[dict[K, T], BeforeValidator(_not_too_many), Field(max_length=MOST_MANY)]
Tools = Annotated[list[T], Field(fail_fast=True, max_length=MOST_TOOLS)]
Few = Annotated[list[T], Field(fail_fast=True, max_length=MOST_FEW)]  # stop sequences, samplers

_LARGE = 64 << 10  # bytes: what is smaller is scanned in less time than a thread takes to begin

_FAULTS: Mapping[JsonFault, str] = MappingProxyType(
    {
        JsonFault.VALUES: f"the body has more than {MOST_VALUES} values; send less at once, or "
        "texts in place of token ids",
        JsonFault.DEPTH: f"the body has more than {MOST_DEPTH} lists and objects within each other",
        JsonFault.NUMBER: "the body is no JSON: a number or word in it is longer than "
        f"{LONGEST_NUMBER} characters",
        JsonFault.NOT_FINITE: "the body is no JSON: a number in it is infinite, or none (NaN)",
        JsonFault.SURROGATE: "the body is no JSON: a text in it holds half a surrogate pair",
        JsonFault.ENCODING: "the body is no JSON: it holds a zero byte; it must be UTF-8",
        JsonFault.DUPLICATE: "the body is no JSON: an object in it has the same name twice",
    }
)


class BodyCheck:
    """Looks at bodies before they are parsed: at large ones apart, one after the other."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __call__(self, body: bytes) -> None:
        """Refuse a body that would take too long to parse, or that is no JSON all can read.

        Who comes back from here parses at once. The next large body is still to be looked at, and
        so the event loop does other things between two of them.
        """
        if len(body) < _LARGE:
            fault = _scan(body)
        else:
            async with self._turn:
                fault = await asyncio.to_thread(_scan, body)
        if fault in _FAULTS:
            raise ApiError(400, _FAULTS[fault])


def _scan(body: bytes) -> JsonFault:
    return scan_json(body, values=MOST_VALUES, depth=MOST_DEPTH, word=LONGEST_NUMBER)
