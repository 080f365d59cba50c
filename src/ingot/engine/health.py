"""Health: whether the step thread of an engine can continue.

The step thread reports when it begins something and when it is idle; every other thread may ask.
There is no watchdog: readers that wait for the step thread ask once a second (channel.py).
"""

import os
import time

from ingot.errors import EngineError


class Home:
    """The process in which a model was opened. Its threads do not exist in a fork."""

    def __init__(self, name: str) -> None:
        """`name` of the model, for the error."""
        self._name = name
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._process

    def check(self) -> None:
        """Raise an error in another process."""
        if not self.is_here:
            raise EngineError(
                f"{self._name} was opened in another process; open the model again after the fork, "
                "or use the start method 'spawn'"
            )


class Health:
    """The home, the failure and the running step of a step thread."""

    def __init__(self, name: str, step_timeout: float | None) -> None:
        """`name` of the model, for errors."""
        self.home = Home(name)
        self._name = name
        self._step_timeout = step_timeout
        self._began: float | None = None
        self._cause: BaseException | None = None  # of an unexpected end

    def begin_step(self) -> None:
        """The step thread begins a step, or a call between two steps."""
        self._began = time.monotonic()

    def rest(self) -> None:
        """The step thread is idle."""
        self._began = None

    def fail(self, error: BaseException) -> None:
        """The step thread has ended with an error."""
        self._cause = error

    @property
    def failure(self) -> EngineError | None:
        """The error that requests get if it has."""
        if self._cause is None:
            return None
        failure = EngineError(
            f"the thread that runs {self._name} has ended with an error: {self._cause!r}; open the "
            "model again"
        )
        failure.__cause__ = self._cause
        return failure

    @property
    def step_seconds(self) -> float:
        """How long the running step has taken so far; 0 if none runs."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def check(self) -> None:
        """Raise an error if the step thread cannot continue."""
        self.home.check()
        if failure := self.failure:
            raise failure
        seconds = self.step_seconds
        if self._step_timeout is not None and seconds > self._step_timeout:
            raise EngineError(
                f"a step of {self._name} has taken {seconds:.0f} s, and step_timeout is "
                f"{self._step_timeout:g} s: a logits processor or the device hangs, or the machine "
                "is too slow for the model; try again later, or open the model with a larger "
                "step_timeout"
            )
