"""What a fault is.

A fault is applied under load, lasts a moment, and is healed. It says which ends of requests it
excuses; everything else that is not the expected answer is a violation.
"""

import threading
from collections import Counter
from http.client import HTTPException
from random import Random
from typing import ClassVar

from chaos.load import Kind, Load
from chaos.served import PARALLEL, PATIENCE, ServedProcess


class Fault:
    """Something that goes wrong, and is put right again."""

    excused: ClassVar[frozenset[Kind]] = frozenset()

    def __init__(self, served: ServedProcess, load: Load, dice: Random) -> None:
        self.served = served
        self.load = load
        self.dice = dice
        self.violations: list[str] = []
        self._demands: list[threading.Thread] = []
        self._noticed: Counter[str] = Counter()

    def why_not(self) -> str | None:
        """The reason it cannot be applied on this machine, if there is one."""
        return None

    def apply(self) -> None:
        """Make it so."""
        raise NotImplementedError

    def heal(self) -> None:
        """Put it right; after that no request may fail."""

    def demand(self, path: str, body: object) -> None:
        """Ask for what the fault denies, and do not wait for the answer."""
        thread = threading.Thread(target=self._demand, args=(path, body), daemon=True)
        self._demands.append(thread)
        thread.start()

    def demand_saves(self) -> None:
        """Have every slot saved at once."""
        for number in range(PARALLEL):
            self.demand(f"/slots/{number}?action=save", {"filename": "burst.slot"})

    def noticed(self) -> Counter[str]:
        """How demands were answered, which shows that the fault was felt; waits for them."""
        for thread in self._demands:
            thread.join(PATIENCE)
        return self._noticed

    def _demand(self, path: str, body: object) -> None:
        try:
            status, answer = self.served.ask("POST", path, body)
        except TimeoutError:
            self.violations.append(f"{path} got no answer in {PATIENCE} s")
        except (OSError, HTTPException):
            self._noticed["closed"] += 1
        else:
            self._noticed[str(status)] += 1
            if status == 500 and Kind.FAILED not in self.excused:
                self.violations.append(f"{path} got a 500: {answer}")


class Limited(Fault):
    """A soft limit of the living process, lowered for a while."""

    which: ClassVar[int]

    def lowest(self) -> int:
        """What it is lowered to."""
        raise NotImplementedError

    def apply(self) -> None:
        """Lower it."""
        self._before = self.served.limit(self.which, self.lowest())

    def heal(self) -> None:
        """Lift it."""
        if not self.served.is_dead:
            self.served.limit(self.which, self._before)
