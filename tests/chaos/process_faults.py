"""Faults of the process: signals, limits, the clock."""

import resource
import signal
from pathlib import Path

from chaos.faults import Fault, Limited
from chaos.load import Kind
from chaos.served import PATIENCE

_DAY = 86_400
_LITTLE_MEMORY = 8 << 20


class Kill(Fault):
    """SIGKILL, in the middle of saves; then a restart on the same port.

    What a cgroup's memory limit does at its worst is the same signal.
    """

    excused = frozenset({Kind.REFUSED, Kind.CUT})

    def apply(self) -> None:
        """Kill it."""
        self.demand_saves()
        self.served.signal(signal.SIGKILL)

    def heal(self) -> None:
        """Start it again."""
        self.served.restart()


class Terminate(Fault):
    """SIGTERM: streams come to their end, and the process exits with 0; then a restart."""

    excused = frozenset({Kind.REFUSED, Kind.ENDED})

    def apply(self) -> None:
        """Ask it to stop."""
        self.served.signal(signal.SIGTERM)

    def heal(self) -> None:
        """Start it again."""
        status = self.served.process.wait(2 * PATIENCE)
        if status != 0:
            self.violations.append(f"SIGTERM ended it with status {status}")
        self.served.restart()


class Stop(Fault):
    """SIGSTOP and SIGCONT: everything waits, nothing is lost."""

    def apply(self) -> None:
        """Stop it."""
        self.served.signal(signal.SIGSTOP)

    def heal(self) -> None:
        """Let it continue."""
        self.served.signal(signal.SIGCONT)


class NoMemory(Limited):
    """RLIMIT_AS a little above what is mapped: large allocations of the living process fail.

    Small ones have to succeed, and answers stay short: pydantic's core, which is written in Rust,
    aborts the process if one of its allocations fails.
    """

    which = resource.RLIMIT_AS
    excused = frozenset({Kind.REFUSED, Kind.ENDED, Kind.CUT, Kind.FAILED, Kind.UNSAVED})

    def lowest(self) -> int:
        """What is mapped now, and a little."""
        return self.served.address_space() + _LITTLE_MEMORY

    def apply(self) -> None:
        """Lower it, and ask for more."""
        super().apply()
        self.demand_saves()
        for _ in range(2):
            self.demand("/completion", {"prompt": "a miller " * 400_000})


class NoDescriptors(Limited):
    """RLIMIT_NOFILE at what is open: no file, no connection."""

    which = resource.RLIMIT_NOFILE
    excused = frozenset({Kind.REFUSED, Kind.UNSAVED})

    def lowest(self) -> int:
        """One more than the highest that is open."""
        opened = Path(f"/proc/{self.served.process.pid}/fd").iterdir()
        return 1 + max(int(path.name) for path in opened)

    def apply(self) -> None:
        """Lower it, and ask for more."""
        super().apply()
        self.demand_saves()


class NoThreads(Limited):
    """RLIMIT_NPROC at 1: no thread, no process."""

    which = resource.RLIMIT_NPROC
    excused = frozenset({Kind.REFUSED, Kind.UNSAVED})

    def why_not(self) -> str | None:
        """Root is exempt from this limit."""
        return "the server runs as root, whom no limit holds" if self.served.is_root else None

    def lowest(self) -> int:
        """Fewer than there are."""
        return 1

    def apply(self) -> None:
        """Lower it, and ask for more; a grammar that is new is compiled in another process."""
        super().apply()
        self.demand_saves()
        grammar = f'root ::= "{self.dice.random()}"'
        self.demand("/completion", {"prompt": "a", "n_predict": 2, "grammar": grammar})


class SkewedClock(Fault):
    """The wall clock jumps by up to a day, forwards or back."""

    def apply(self) -> None:
        """Set it."""
        self.served.skew(self.dice.uniform(-_DAY, _DAY))

    def heal(self) -> None:
        """Set it right, which is another jump."""
        self.served.skew(0)
