"""The valid values of each sampling parameter: one line per field, and the checks.

Out: the value, or `SamplingError` with the field, the value and what is expected. It does not know
what a parameter does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ingot.errors import SamplingError

LARGEST_SEED = 2**64 - 1
MOST_PROBABILITIES = 1000  # alternatives reported with a token
_LARGEST_COUNT = 2**31 - 1
_LARGEST_BIAS = 1e30  # logits are 32-bit floats
_LARGEST = 1e9  # of factors and divisors


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included unless `low_open`."""

    low: float
    high: float
    whole: bool = False
    low_open: bool = False

    def __contains__(self, value: object) -> bool:
        kinds = (int,) if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        return self.low <= value <= self.high and not (self.low_open and value == self.low)

    def __str__(self) -> str:
        number = "a whole number" if self.whole else "a number"
        if self.high in (math.inf, _LARGEST, _LARGEST_COUNT):
            least = "greater than" if self.low_open else "of at least"
            return f"{number} {least} {self.low:g}"
        beyond = f" greater than {self.low:g}" if self.low_open else f" from {self.low:g}"
        high = self.high if self.whole else f"{self.high:g}"
        return f"{number}{beyond} {'and at most' if self.low_open else 'to'} {high}"


def _count(low: int) -> Range:
    return Range(low, _LARGEST_COUNT, whole=True)


# "At least" means finite numbers: the check refuses infinities.
RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "temperature": Range(0, _LARGEST),
        "dynatemp_range": Range(0, _LARGEST),
        "dynatemp_exponent": Range(0, _LARGEST),
        "top_k": _count(-1),
        "top_p": Range(0, 1),
        "min_p": Range(0, 1),
        "typical_p": Range(0, 1, low_open=True),
        "tfs_z": Range(0, 1, low_open=True),
        "xtc_probability": Range(0, 1),
        "xtc_threshold": Range(0, 1),
        "top_n_sigma": Range(-1, _LARGEST),
        "epsilon_cutoff": Range(0, 1),
        "eta_cutoff": Range(0, 1),
        "adaptive_target": Range(-1, 1),
        "adaptive_decay": Range(0, 0.99),
        "min_keep": _count(0),
        "repeat_last_n": _count(-1),
        "repeat_penalty": Range(0, _LARGEST, low_open=True),
        "presence_penalty": Range(-100, 100),
        "frequency_penalty": Range(-100, 100),
        "dry_multiplier": Range(0, _LARGEST),
        "dry_base": Range(1, _LARGEST),
        "dry_allowed_length": _count(1),
        "dry_penalty_last_n": _count(-1),
        "mirostat": Range(0, 2, whole=True),
        "mirostat_tau": Range(0, _LARGEST),
        "mirostat_eta": Range(0, _LARGEST),
        "min_tokens": _count(0),
        "n_probs": Range(0, MOST_PROBABILITIES, whole=True),
    }
)

# The same for fields that may also be None.
OPTIONAL_RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "seed": Range(0, LARGEST_SEED, whole=True),
        "max_tokens": _count(0),
        "time_limit": Range(0, math.inf, low_open=True),
    }
)


def check_number(field: str, value: object) -> None:
    """Raise `SamplingError` if a value is outside the range of its field."""
    allowed, or_none = RANGES.get(field), ""
    if allowed is None:
        allowed, or_none = OPTIONAL_RANGES[field], " or None"
        if value is None:
            return
    if value not in allowed or (isinstance(value, float) and not math.isfinite(value)):
        raise SamplingError(field, value, f"{allowed}{or_none}")


def check_flag(field: str, value: object) -> None:
    """Raise `SamplingError` if a value is not a bool."""
    if not isinstance(value, bool):
        raise SamplingError(field, value, "True or False")


def texts(field: str, value: object) -> tuple[str, ...]:
    """One string or several, as a tuple; none of them empty."""
    listed = (value,) if isinstance(value, str) else value
    if not isinstance(listed, (tuple, list)) or not all(
        isinstance(text, str) and text for text in listed
    ):
        raise SamplingError(field, value, "a string or a list of strings, none of them empty")
    return tuple(listed)


def token_ids(field: str, value: object) -> tuple[int, ...]:
    """Token ids as a tuple. The chain builder checks that they are in the vocabulary."""
    listed = tuple(value) if isinstance(value, (tuple, list, set, frozenset)) else None
    if listed is None or not all(_is_id(id) for id in listed):
        raise SamplingError(field, value, "a list of token ids")
    return listed


def biases(field: str, value: object) -> Mapping[int, float]:
    """A bias for each token id; False or minus infinity bans a token."""
    expected = (
        f"a mapping of token ids to numbers up to {_LARGEST_BIAS:g}, or to False, which bans the "
        "token"
    )
    if not isinstance(value, Mapping):
        raise SamplingError(field, value, expected)
    checked: dict[int, float] = {}
    for id, bias in value.items():
        if not _is_id(id) or bias is True or not isinstance(bias, (int, float)):
            raise SamplingError(field, value, expected)
        banned = bias is False or bias == -math.inf
        if not banned and not -_LARGEST_BIAS <= bias <= _LARGEST_BIAS:
            raise SamplingError(field, value, expected)
        checked[id] = -math.inf if banned else float(bias)
    return MappingProxyType(checked)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT
