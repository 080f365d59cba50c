"""How many threads decode: as many as pay on the machine as it is at the moment.

The threads of a step meet after every operation, so one that has lost its core holds up all others.
Where cores are shared (other processes, other guests of a virtual machine), all threads together
can be several times slower than half of them. Results do not depend on the number of threads, so it
may change from step to step.

Durations of steps come in; the number of threads for the next step goes out. A team that waits a
lot tries a smaller one for a few steps and keeps it if steps get shorter. A team that is smaller
than it may be tries a larger one from time to time. Trials that did not pay become rarer.
"""

import logging
from collections import deque
from statistics import median

_log = logging.getLogger(__name__)

TRIAL = 8  # steps to judge a size by
WAITING = 0.25  # share of a step's time that makes a smaller team worth a trial
SHRINK_BELOW, GROW_BELOW = 0.9, 0.97  # ratio of durations to keep the new size
# Steps between two trials: at first, and at most.
_SHRINK_AFTER, _SHRINK_AT_MOST = 16, 1024
_GROW_AFTER, _GROW_AT_MOST = 128, 4096


class TeamSize:
    """Chooses `size`, the threads of the next decode step, from 1 to `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = most
        self._settled = most  # the size outside of a trial
        self._tokens = 0  # of the steps that are compared
        self._durations: deque[float] = deque(maxlen=TRIAL)  # of the settled size
        self._waited: deque[float] = deque(maxlen=TRIAL)
        self._trial: list[float] = []
        self._steps = 0  # since the last trial
        self._shrink_after, self._grow_after = _SHRINK_AFTER, _GROW_AFTER

    def report(self, tokens: int, seconds: float, waited: float) -> None:
        """Note a step: its tokens, its duration, and how long a thread waited for others."""
        if self.most == 1:
            return
        if tokens != self._tokens:  # durations are not comparable
            self._tokens = tokens
            self._settle(self._settled)
        elif self.size != self._settled:
            self._trial.append(seconds)
            clear = len(self._trial) > 1 and min(self._trial) > 2 * median(self._durations)
            if clear or len(self._trial) == TRIAL:
                self._judge()
        else:
            self._durations.append(seconds)
            self._waited.append(waited)
            self._steps += 1
            if len(self._durations) == TRIAL:
                self._consider_trial()

    def _consider_trial(self) -> None:
        waits = sum(self._waited) > WAITING * sum(self._durations)
        if waits and self._settled > 1 and self._steps >= self._shrink_after:
            self._try(self._settled * 3 // 4)
        elif self._settled < self.most and self._steps >= self._grow_after:
            self._try(min(self.most, self._settled * 4 // 3 + 1))

    def _try(self, size: int) -> None:
        self.size = size
        self._steps = 0

    def _judge(self) -> None:
        ratio = median(self._trial) / median(self._durations)
        smaller = self.size < self._settled
        kept = ratio < (SHRINK_BELOW if smaller else GROW_BELOW)
        if smaller:
            self._shrink_after = (
                _SHRINK_AFTER if kept else min(2 * self._shrink_after, _SHRINK_AT_MOST)
            )
        else:
            self._grow_after = _GROW_AFTER if kept else min(2 * self._grow_after, _GROW_AT_MOST)
        if kept:
            _log.info("decoding with %d of %d threads", self.size, self.most)
        self._settle(self.size if kept else self._settled)

    def _settle(self, size: int) -> None:
        self.size = self._settled = size
        self._durations.clear()
        self._waited.clear()
        self._trial.clear()
