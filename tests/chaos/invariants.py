"""What must hold after every fault, once it is healed and the clients are gone.

Comes in: the server and how requests ended. Goes out: violations, as sentences.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from chaos.load import Kind, Outcome
from chaos.served import ServedProcess, Usage

# What a process may hold more than at the start of its life. A pool of threads fills up; sockets
# that were just closed and the allocator's free lists take a while.
MORE_DESCRIPTORS = 8
MORE_THREADS = 16
MORE_MEMORY = 128 << 20  # bytes, from the median of a life's first third to that of its last
MOST_MORE_MEMORY = 256 << 20  # bytes, at any time after a fault
_FEWEST_SAMPLES = 6  # of memory, that have thirds

_ALWAYS_FINE = frozenset({Kind.EXACT, Kind.DROPPED})


def about_requests(outcomes: Iterable[Outcome], excused: frozenset[Kind]) -> Iterator[str]:
    """Requests end as expected, or as the fault excuses."""
    wrong = [one for one in outcomes if one.kind not in _ALWAYS_FINE | excused]
    for what, count in Counter(f"{one.kind}: {one.what}" for one in wrong).most_common(3):
        yield f"{count} requests {what}"


def about_rest(served: ServedProcess, before: Usage) -> Iterator[str]:
    """The server is healthy, holds nothing for clients that are gone, and keeps no temporaries."""
    if served.is_dead:
        yield f"the server died with status {served.process.returncode}"
        return
    if not served.eventually(served.is_healthy):
        yield f"/health never came back: {_said(served)}"
        return
    if not served.eventually(lambda: not any(served.gauges().values())):
        yield f"not given back: {served.gauges()}"

    def usage_is_back() -> bool:
        now = served.usage()
        return (
            now.descriptors <= before.descriptors + MORE_DESCRIPTORS
            and now.threads <= before.threads + MORE_THREADS
        )

    if not served.eventually(usage_is_back):
        yield f"descriptors or threads not given back: {served.usage()}, before: {before}"
    yield from about_slot_files(served)


def about_slot_files(served: ServedProcess) -> Iterator[str]:
    """Every saved slot is whole; nothing else is in the folder."""
    for path in sorted(served.slots.iterdir()):
        if path.suffix != ".slot":
            yield f"a temporary file was left: {path.name}"
            continue
        status, answer = served.ask("POST", "/slots/0?action=restore", {"filename": path.name})
        if status != 200:
            yield f"the saved slot {path.name} is torn: {status} {answer}"


def about_memory(samples: list[int]) -> Iterator[str]:
    """The memory of one life stays flat."""
    listed = ", ".join(str(sample >> 20) for sample in samples)
    if samples and max(samples) > samples[0] + MOST_MORE_MEMORY:
        yield f"memory jumped in one life (MiB): {listed}"
    if len(samples) < _FEWEST_SAMPLES:
        return
    third = len(samples) // 3
    if median(samples[-third:]) > median(samples[:third]) + MORE_MEMORY:
        yield f"memory grew in one life (MiB): {listed}"


def _said(served: ServedProcess) -> str:
    try:
        return str(served.ask("GET", "/health"))
    except OSError as error:
        return str(error)
