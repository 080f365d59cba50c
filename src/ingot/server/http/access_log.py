"""AccessRecord: one HTTP request for the access log and the metrics."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from starlette.types import Scope

from ingot.engine import Request, Timings

_KEY = "ingot.access_record"


@dataclass(slots=True)
class AccessRecord:
    """A request from its arrival to the end of its response."""

    id: str
    started: float = field(default_factory=time.perf_counter)
    model: str | None = None
    timings: list[Timings] = field(default_factory=list)  # of its completions, after their end
    ignored: list[str] = field(default_factory=list)  # parameters that its endpoint does not have
    warnings: list[str] = field(default_factory=list)  # for the client, about these

    def count(self, requests: Sequence[Request]) -> None:
        """Add the timings of the engine's requests."""
        self.timings += [request.timings for request in requests]

    def log(self, scope: Scope, status: int, seconds: float) -> None:
        """Write a line to stderr."""
        line: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": self.id,
            "client": (scope.get("client") or ("-",))[0],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "seconds": round(seconds, 4),
        }
        if self.model is not None:
            line |= {
                "model": self.model,
                "prompt_tokens": sum(timings.prompt_tokens for timings in self.timings),
                "reused_tokens": sum(timings.reused_tokens for timings in self.timings),
                "generated_tokens": sum(timings.generated_tokens for timings in self.timings),
            }
        if self.ignored:
            line["ignored"] = ",".join(self.ignored)
        print(" ".join(f"{name}={_quoted(value)}" for name, value in line.items()), file=sys.stderr)


def record_of(scope: Scope) -> AccessRecord:
    """The record of a request."""
    return cast("AccessRecord", scope[_KEY])


def set_record(scope: Scope, record: AccessRecord) -> None:
    """Attach a record to a request."""
    scope[_KEY] = record


def _quoted(value: object) -> str:
    """A value for the log, in quotes unless it is one plain word."""
    text = str(value)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\') and text
    return text if plain else json.dumps(text)
