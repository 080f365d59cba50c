"""What an engine's client and its process say to each other, and how errors cross.

All of it is pickled; both sides are the same program. It does not know how messages travel.
"""

import pickle
from dataclasses import fields
from typing import Any, NamedTuple

from ingot.arrays import Logits
from ingot.backends.backend import Stage
from ingot.backends.cpu import Copies
from ingot.backends.precision import Precision
from ingot.engine.channel import Progress
from ingot.engine.model.on_gpu import OnGpu
from ingot.engine.request import Completion, Timings
from ingot.engine.text_task import Asked
from ingot.errors import EngineError
from ingot.sampling import SampledToken, SamplingParams


class Fault(NamedTuple):
    """An error on its way. Errors are pickled by the arguments of their class, which differ."""

    kind: type[BaseException]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: BaseException) -> "Fault":
        """The parts of an error; one that cannot be pickled becomes an `EngineError`."""
        fault = cls(type(error), error.args, dict(error.__dict__))
        try:
            pickle.dumps(fault)
        except Exception:  # whatever an error refers to
            return cls(EngineError, (str(error) or type(error).__name__,), {})
        return fault

    def error(self) -> BaseException:
        """The error again, without its traceback."""
        error = self.kind.__new__(self.kind, *self.arguments)
        error.args = self.arguments
        error.__dict__.update(self.state)
        return error


# From the client.


class Submit(NamedTuple):
    """A text to generate; the answer is its seed."""

    number: int
    asked: dict[str, Any]


class Cancel(NamedTuple):
    """Stop generating a text."""

    number: int


class Call(NamedTuple):
    """A method of the engine to call."""

    number: int
    name: str
    arguments: tuple[Any, ...] = ()


class Taken(NamedTuple):
    """Rows of logits were read; whether more are wanted."""

    number: int
    wants_more: bool


class Release(NamedTuple):
    """A result that is no longer needed, such as a compiled grammar; or its call is cancelled."""

    number: int


# From the process.


class Opening(NamedTuple):
    """How far the opening of the model is."""

    stage: Stage
    done: int
    total: int


class Opened(NamedTuple):
    """The model is ready."""

    context: int
    threads: int
    decode_sequences: int
    default_running: int
    step_tokens: int
    precision: Precision
    gpu: OnGpu | None
    why_cpu: str | None
    copies: Copies | None


class Answer(NamedTuple):
    """The result of a call, or its error."""

    number: int
    value: Any = None
    fault: Fault | None = None


class Rows(NamedTuple):
    """Some rows of logits, for a call that reads them."""

    number: int
    start: int
    logits: Logits


class Beat(NamedTuple):
    """Sent every second: why the engine cannot answer, if it cannot."""

    trouble: Fault | None


class News(NamedTuple):
    """What a step has added to a text. A list of them is the message of a step."""

    number: int
    text: str
    tokens: list[int] | list[SampledToken]  # with their log-probabilities, if they have some
    progress: list[Progress]
    end: "End | None" = None


class End(NamedTuple):
    """How a text has ended."""

    done: Completion | None
    fault: Fault | None
    timings: Timings


def packed(asked: Asked) -> dict[str, Any]:
    """What a request asks for, in a form that can be pickled; the client keeps `parse`."""
    params = {entry.name: getattr(asked.params, entry.name) for entry in fields(SamplingParams)}
    params["logit_bias"] = dict(asked.params.logit_bias)  # a mapping proxy cannot be pickled
    kept = {
        entry.name: getattr(asked, entry.name)
        for entry in fields(Asked)
        if entry.name not in ("params", "parse", "adapter")
    }
    adapter = asked.adapter and asked.adapter.without_weights
    return {**kept, "params": params, "adapter": adapter}


def unpacked(asked: dict[str, Any]) -> Asked:
    """The same as the engine takes it. The parameters were checked when they were made."""
    params = object.__new__(SamplingParams)
    for name, value in asked["params"].items():
        object.__setattr__(params, name, value)
    return Asked(**{**asked, "params": params})
