"""Applies faults at random to a server under load, and checks after each what must still hold.

    python -m chaos.run [--seconds 600] [--seed N] [--only FAULT ...]

Every round applies each fault once, in a new order. A violation is printed when it is
found, and the program exits with 1; the server's log is then kept in build/chaos. The clock that
is skewed is the one Python reads; the monotonic clocks, which time-outs use, are not.
"""

import argparse
import http.client
import secrets
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from chaos import client_faults, file_faults, invariants, process_faults
from chaos.faults import Fault
from chaos.load import CLIENTS, Kind, Load
from chaos.served import ServedProcess

FAULTS: tuple[type[Fault], ...] = (
    process_faults.Kill,
    process_faults.Terminate,
    process_faults.Stop,
    process_faults.NoMemory,
    process_faults.NoDescriptors,
    process_faults.NoThreads,
    process_faults.SkewedClock,
    file_faults.FullDisk,
    file_faults.SmallFiles,
    file_faults.TruncatedModel,
    file_faults.OverwrittenModel,
    file_faults.ReplacedModel,
    client_faults.DroppedStreams,
    client_faults.SlowReaders,
    client_faults.UnfinishedRequests,
    client_faults.ConnectionFlood,
    client_faults.HugeHeaders,
    client_faults.BodyBombs,
    client_faults.GrammarBombs,
)
KEPT = Path("build") / "chaos"  # the log of a run that failed


@dataclass
class Record:
    """What one fault has done in a run."""

    applied: int = 0
    ends: Counter[Kind] = field(default_factory=Counter)
    violations: int = 0
    not_applied: str | None = None


class Run:
    """One server, its clients, and what was found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = Random(seed)
        self.served = ServedProcess(folder)
        self.load = Load(self.served, seed)
        self.records: dict[str, Record] = {}
        self._began = time.monotonic()
        self._memory: list[int] = []  # of this life, after each fault
        self._life = 0

    def begin(self, faults: list[type[Fault]]) -> list[type[Fault]]:
        """Warm up; the faults that this machine allows."""
        self.load.begin()
        possible = []
        for made in faults:
            record = self.records[made.__name__] = Record()
            record.not_applied = made(self.served, self.load, self.dice).why_not()
            if record.not_applied is None:
                possible.append(made)
        self._undisturbed()
        return possible

    def _undisturbed(self) -> None:
        """A moment of load without a fault, at the start of a life: what the process holds then."""
        self.load.resume()
        self.load.wait_for_answers(8 * CLIENTS)
        self._note("no fault", invariants.about_requests(self.load.pause(), frozenset()))
        self._before = self.served.usage()
        self._life = self.served.lives
        self._memory = [self._before.memory]

    def once(self, made: type[Fault]) -> None:
        """Apply a fault and heal it, under load; then see what must hold."""
        fault, name = made(self.served, self.load, self.dice), made.__name__
        self.load.resume()
        self.load.wait_for_answers(CLIENTS)
        try:
            fault.apply()
            time.sleep(self.dice.uniform(0.1, 1))
            fault.heal()
        except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
            fault.violations.append(f"the server could not be reached: {error!r}")
        self.load.wait_for_answers(CLIENTS)
        noticed = fault.noticed()
        ends = self.load.pause()
        record = self.records[name]
        record.applied += 1
        record.ends.update(end.kind for end in ends)
        self._note(name, [*fault.violations, *invariants.about_requests(ends, made.excused)])
        self._note(name, invariants.about_rest(self.served, self._before))
        if self.served.is_dead:
            self.served.start()
        if self.served.lives != self._life:
            self._note(name, invariants.about_memory(self._memory))
            self._undisturbed()
        self._memory.append(self.served.usage().memory)
        counts = _listed(Counter(end.kind.value for end in ends))
        memory = self._memory[-1] >> 20
        self._say(f"{name}: {counts}; demands: {_listed(noticed)}; memory {memory} MiB")

    def end(self) -> None:
        """The last look at memory."""
        self._note("no fault", invariants.about_memory(self._memory))
        self.load.end()

    def _note(self, name: str, violations: Iterator[str] | list[str]) -> None:
        for violation in violations:
            self.records.setdefault(name, Record()).violations += 1
            self._say(f"VIOLATION after {name}: {violation}")

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    @property
    def violations(self) -> int:
        """How many there were."""
        return sum(record.violations for record in self.records.values())

    def report(self) -> Iterator[str]:
        """The table of the run."""
        yield f"{'fault':20} {'applied':>7} {'exact':>7} {'excused':>7} {'violations':>10}"
        for name, record in self.records.items():
            if not (record.applied or record.violations):
                yield f"{name:20} not applied: {record.not_applied or 'the time was over'}"
                continue
            excused = sum(
                record.ends[kind]
                for kind in (Kind.REFUSED, Kind.ENDED, Kind.CUT, Kind.FAILED, Kind.UNSAVED)
            )
            yield (
                f"{name:20} {record.applied:7} {record.ends[Kind.EXACT]:7} {excused:7} "
                f"{record.violations:10}"
            )
        yield f"{self.served.lives} lives of the server, {self.violations} violations"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def rounds(faults: list[type[Fault]], dice: Random) -> Iterator[type[Fault]]:
    """Every fault once, in a new order each time, for ever."""
    while True:
        yield from dice.sample(faults, len(faults))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--only", nargs="*", help="names of faults")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end the server, too
    faults = [made for made in FAULTS if not options.only or made.__name__ in options.only]
    print(f"chaos for {options.seconds:g} s, seed {options.seed}", flush=True)
    with TemporaryDirectory(prefix="ingot-chaos-") as folder:
        run = Run(Path(folder), options.seed)
        try:
            possible = run.begin(faults)
            end = time.monotonic() + options.seconds
            for made in rounds(possible, run.dice):
                if time.monotonic() > end:
                    break
                run.once(made)
            run.end()
        finally:
            run.served.close()
            if run.violations or sys.exc_info()[0]:
                KEPT.mkdir(parents=True, exist_ok=True)
                shutil.copy(run.served.log, KEPT / "server.log")
                print(f"the server's log is in {KEPT / 'server.log'}")
        print("\n".join(run.report()))
    sys.exit(1 if run.violations else 0)


if __name__ == "__main__":
    main()
