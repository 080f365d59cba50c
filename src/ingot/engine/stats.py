"""What an engine counts: tokens, steps, and the seconds between the tokens of a text."""

from bisect import bisect_left
from dataclasses import dataclass

GAP_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class TokenGaps:
    """A histogram of the seconds from one token of a text to its next."""

    def __init__(self) -> None:
        self.counts = [0] * (len(GAP_BOUNDS) + 1)  # up to each bound, and above the last
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one gap."""
        self.counts[bisect_left(GAP_BOUNDS, seconds)] += 1
        self.seconds += seconds


class Counters:
    """What the step thread has done; it writes, other threads read."""

    def __init__(self) -> None:
        self.steps = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.text_steps = 0
        self.guessed_tokens = 0
        self.accepted_tokens = 0
        self.gaps = TokenGaps()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the engine is doing now, and has done since it started."""

    waiting: int  # requests
    running: int
    steps: int
    prompt_tokens: int  # that the model ran
    reused_tokens: int  # of prompts, which were in the cache already
    generated_tokens: int
    text_steps: int  # steps that gave a text tokens, summed over the texts
    guessed_tokens: int  # by speculation
    accepted_tokens: int  # of those, which were right
    preemptions: int
    blocks: int  # of the cache
    blocks_held: int  # by requests that run
    blocks_kept: int  # for requests to come
    step_seconds: float  # since the running step began; 0 if none runs
    compilations: int  # of GPU kernels, or read from the disk
    captures: int  # of pieces of steps
    compilations_after_ready: int  # in the path of a request: 0 is right
    captures_after_ready: int
    copied_bytes: int  # of weights, that copies in memory take once all are made
