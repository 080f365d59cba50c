"""GrammarLimits: what a grammar may cost before it is refused."""

from dataclasses import dataclass

LARGEST_SOURCE = 512 << 10  # characters: enough for several hundred tools with their schemas


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Limits of compiling one grammar, of the queue, and of the cache."""

    quick_seconds: float = 0.5  # CPU time; slower grammars queue separately
    seconds: float = 5.0  # CPU time
    patience: float = 4.0  # wall-clock limits are this many times the CPU limits
    memory: int = 256 << 20  # bytes
    waiting: int = 32  # grammars that are being compiled or queued
    kept: int = 64  # compiled grammars in the cache: requests repeat their schemas
    kept_memory: int = 512 << 20  # bytes of the cache
