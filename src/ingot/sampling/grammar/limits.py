"""GrammarLimits: how much a grammar may cost before it is refused."""

from dataclasses import dataclass

LARGEST_SOURCE = 512 << 10  # characters of a grammar: some hundred tools with their schemas


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """What compiling one grammar may take, and how many may wait for it."""

    quick_seconds: float = 0.5  # of CPU time; whoever needs more queues with others like it
    seconds: float = 5.0  # of CPU time
    patience: float = 4.0  # the time by the clock may be so many times as long
    memory: int = 256 << 20  # bytes
    waiting: int = 32  # grammars that are being compiled, or wait for it
    kept: int = 64  # compiled grammars: requests come again with the same schema
    kept_memory: int = 512 << 20  # bytes of all that are kept
