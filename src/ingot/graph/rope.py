"""Rotary frequencies: the one place that knows how contexts are stretched.

Every scheme in use (none, linear, per-element factors, YaRN) only changes how fast each
pair of elements rotates and multiplies cosine and sine by one number. So a backend gets a
list of frequencies and a magnitude and knows nothing of schemes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN: fast pairs keep their speed, slow ones are interpolated, a ramp in between."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    log_multiplier: float = 0.0  # how much of the usual magnitude attention has elsewhere
    whole_pairs: bool = True  # where the ramp begins and ends


def frequencies(
    size: int,
    base: float,
    *,
    linear_factor: float = 1.0,
    yarn: Yarn | None = None,
    factors: Sequence[float] | None = None,
) -> tuple[tuple[float, ...], float]:
    """Return the frequency of each of size/2 pairs (radians per token) and the magnitude.

    `factors` divide the speed of each pair (Llama 3, LongRoPE); `linear_factor` divides all.
    """
    speeds = [base ** (-2.0 * pair / size) for pair in range(size // 2)]
    if factors is not None:
        speeds = [speed / factor for speed, factor in zip(speeds, factors, strict=True)]
    if yarn is None:
        return tuple(speed / linear_factor for speed in speeds), 1.0

    def pair_that_turns(times: float) -> float:
        """The pair that makes so many turns over the original context."""
        return size * math.log(yarn.original_context / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_that_turns(yarn.beta_fast), pair_that_turns(yarn.beta_slow)
    if yarn.whole_pairs:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0.0, low), min(size - 1.0, high)

    def share_kept(pair: int) -> float:
        ramp = (pair - low) / max(0.001, high - low)
        return 1.0 - min(1.0, max(0.0, ramp))

    stretched = tuple(
        speed * share_kept(pair) + speed / yarn.factor * (1.0 - share_kept(pair))
        for pair, speed in enumerate(speeds)
    )
    growth = 0.1 * math.log(yarn.factor)
    magnitude = yarn.attention_factor * (1.0 + growth)
    return stretched, magnitude / (1.0 + yarn.log_multiplier * max(0.0, growth))
