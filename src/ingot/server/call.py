"""Call: one HTTP request, as the access log and the measurements see it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from starlette.types import Scope

from ingot.engine import Request, Timings

_KEY = "ingot.call"


@dataclass(slots=True)
class Call:
    """A request from its arrival to its answer."""

    id: str
    started: float = field(default_factory=time.perf_counter)
    model: str | None = None
    timings: list[Timings] = field(default_factory=list)  # of its texts, when they have ended

    def count(self, requests: Sequence[Request]) -> None:
        """Take note of what its texts took."""
        self.timings = [request.timings for request in requests]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(timings.prompt_tokens for timings in self.timings)

    @property
    def reused_tokens(self) -> int:
        """Those of them that were in the cache."""
        return sum(timings.reused_tokens for timings in self.timings)

    @property
    def generated_tokens(self) -> int:
        """Tokens of all texts."""
        return sum(timings.generated_tokens for timings in self.timings)


def call_of(scope: Scope) -> Call:
    """The call that a request belongs to."""
    return cast("Call", scope[_KEY])


def set_call(scope: Scope, call: Call) -> None:
    """Begin a call."""
    scope[_KEY] = call
