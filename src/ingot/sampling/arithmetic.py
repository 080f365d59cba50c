"""The arithmetic of sampling, with the same bits on every machine.

In: rows of logits. Out: sums, probabilities, draws and the largest values. NumPy's `exp`, `log` and
sums differ in the last bit between CPUs, and a token may depend on that bit. So they are native
(native/sampling/) and consist of exactly rounded steps only. A row with NaN or +inf, or in which
all tokens are banned, raises `LogitsError`.
"""

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.arrays import Ints, Logits
from ingot.errors import LogitsError


def not_finite() -> LogitsError:
    """The error of a row that contains NaN or +inf."""
    return LogitsError("the logits contain NaN or +inf, so no token can be sampled")


def nothing_left() -> LogitsError:
    """The error of a row in which all tokens are banned."""
    return LogitsError("all tokens are banned, so none can be sampled")


def _error(error: ValueError) -> LogitsError:
    return nothing_left() if "no token" in str(error) else not_finite()


def softmax(logits: Logits) -> NDArray[np.float64]:
    """The probabilities of the logits, in their order."""
    try:
        return _native.softmax(logits)
    except ValueError as error:
        raise _error(error) from None


def log_sum_exp(logits: Logits) -> float:
    """log(sum(exp(logits))): a logit minus this is a log-probability."""
    largest, total, _ = _sums(logits)
    return largest + log(total)


def entropy(logits: Logits) -> float:
    """The entropy of the logits' distribution, in nats."""
    _, total, weighted = _sums(logits)
    return log(total) - weighted / total


def largest_and_total(logits: Logits) -> tuple[float, float]:
    """The largest logit, and the sum of exp(logit - largest)."""
    largest, total, _ = _sums(logits)
    return largest, total


def _sums(logits: Logits) -> tuple[float, float, float]:
    try:
        return _native.sum_row(logits)
    except ValueError as error:
        raise _error(error) from None


def deviation(logits: Logits) -> float:
    """The standard deviation of the logits that are not banned."""
    try:
        return _native.spread_of_row(logits)[1]
    except ValueError as error:
        raise _error(error) from None


def draw(logits: Logits, uniform: float) -> int:
    """The index at which the cumulative probability exceeds `uniform` (0 to 1)."""
    try:
        return _native.draw(logits, uniform)
    except ValueError as error:
        raise _error(error) from None


def near_top(row: Logits, distance: float) -> tuple[Ints, Logits]:
    """The tokens whose logit is at most `distance` below the largest, by id."""
    try:
        return _native.select_near_top(row, distance)
    except ValueError as error:
        raise _error(error) from None


def top_of_rows(rows: Logits, count: int, threads: int) -> list[tuple[Ints, Logits]]:
    """The likeliest tokens of each row, at most `count`, largest first, ties by id."""
    shape = len(rows), min(count, rows.shape[1])
    ids, logits = np.empty(shape, np.int32), np.empty(shape, np.float32)
    found = np.empty(len(rows), np.int32)
    _native.select_top(rows, np.full_like(found, shape[1]), ids, logits, found, threads)
    results: list[tuple[Ints, Logits]] = []
    for row, allowed in enumerate(found.tolist()):
        if allowed <= 0:
            raise nothing_left() if allowed == 0 else not_finite()
        results.append((ids[row, :allowed], logits[row, :allowed]))
    return results


def top(row: Logits, count: int) -> tuple[Ints, Logits]:
    """The likeliest tokens of one row, as `top_of_rows`."""
    return top_of_rows(row[np.newaxis], count, 1)[0]


def exp(value: float) -> float:
    """e to the power of `value`; 0 below -708."""
    return float(_native.exp(np.array([value]))[0])


def log(value: float) -> float:
    """The natural logarithm of a positive number; minus infinity for 0."""
    return float(_native.log(np.array([value]))[0]) if value > 0.0 else -np.inf


def logs(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The natural logarithms of positive numbers."""
    return _native.log(values)
