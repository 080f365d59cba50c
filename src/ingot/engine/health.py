"""Health: whether the step thread of an engine can go on.

The step thread says when it begins something and when it rests; every other thread may ask. Nobody
watches all the time: whoever waits for the step thread asks now and then (channel.py).
"""

import os
import time

from ingot.errors import EngineError


class Home:
    """The process in which a model was opened. A fork has no threads of it."""

    def __init__(self, name: str) -> None:
        """`name` is that of the model, for the error."""
        self._name = name
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it is this process."""
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
        """`name` is that of the model."""
        self.home = Home(name)
        self._name = name
        self._step_timeout = step_timeout
        self._began: float | None = None
        self._cause: BaseException | None = None  # of an end that nobody asked for

    def begin_step(self) -> None:
        """The step thread begins a step, or something that others ask for between two steps."""
        self._began = time.monotonic()

    def rest(self) -> None:
        """It has nothing to do."""
        self._began = None

    def fail(self, error: BaseException) -> None:
        """It has ended with an error."""
        self._cause = error

    @property
    def failure(self) -> EngineError | None:
        """An error that says so, if it has."""
        if self._cause is None:
            return None
        failure = EngineError(
            f"the thread that runs {self._name} has ended with an error: {self._cause!r}; open the "
            "model again to go on"
        )
        failure.__cause__ = self._cause
        return failure

    @property
    def step_seconds(self) -> float:
        """How long the step that runs has taken so far; 0 if none does."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def check(self) -> None:
        """Raise an error if the step thread cannot go on."""
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
