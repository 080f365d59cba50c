"""StepCosts: the seconds of a step by its columns, from the last steps.

A column is one token; a decode step has one of each text. Measured seconds come in, expected
seconds go out, also for numbers of columns that never ran. It does not know texts.
"""

from bisect import bisect_left
from collections import deque
from statistics import median

_LAST = 5  # steps that count


class StepCosts:
    """Seconds by number of columns."""

    def __init__(self) -> None:
        self._steps: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._known: list[int] = []  # in order

    def add(self, columns: int, seconds: float) -> None:
        """Count a step."""
        if columns not in self._steps:
            self._steps[columns] = deque(maxlen=_LAST)
            self._known = sorted(self._steps)
        self._steps[columns].append(seconds)
        self._medians[columns] = median(self._steps[columns])

    def knows(self, columns: int) -> bool:
        """Whether a step of so many columns ran."""
        return columns in self._steps

    @property
    def most_columns(self) -> int:
        """The most columns of a step that ran."""
        return self._known[-1] if self._known else 0

    def seconds(self, columns: int) -> float | None:
        """Seconds to expect; None: no step ran yet.

        Between two known numbers the seconds grow evenly. Above the largest known one they grow as
        between the last two, or with the columns if there is only one: no step takes longer than
        its columns one after the other.
        """
        if columns in self._medians:
            return self._medians[columns]
        if not self._known:
            return None
        at = bisect_left(self._known, columns)
        if at == 0:
            return self._medians[self._known[0]]
        below = self._known[at - 1]
        if at < len(self._known):
            return self._line(below, self._known[at], columns)
        together = self._medians[below] * columns / below
        if at == 1:
            return together
        return min(together, self._line(self._known[at - 2], below, columns))

    def at_least(self, columns: int) -> float | None:
        """The same, but rather too few seconds than too many for numbers beyond the known ones."""
        if not self._known:
            return None
        smallest, largest = self._known[0], self._known[-1]
        if columns > largest:
            return self._medians[largest]
        if columns < smallest:
            return self._medians[smallest] * columns / smallest
        return self.seconds(columns)

    def _line(self, first: int, second: int, columns: int) -> float:
        start = self._medians[first]
        rise = max(self._medians[second] - start, 0.0) / (second - first)
        return start + rise * (columns - first)
