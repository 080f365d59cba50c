"""What each cut keeps: plain definitions on probabilities, from the papers and descriptions.

Each takes the probabilities of all tokens and returns the set of those it keeps, and how
clear-cut that is: the smallest distance of any decision from its bound.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Probabilities = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kept:
    """Tokens kept, and the smallest distance of a decision from its bound."""

    ids: frozenset[int]
    margin: float


def softmax(logits: NDArray[np.float32]) -> Probabilities:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def entropy(p: Probabilities) -> float:
    some = p[p > 0]
    return float(-(some * np.log(some)).sum())


def by_probability(p: Probabilities) -> list[int]:
    """Likeliest first, equal ones by id, without the banned."""
    return [int(i) for i in np.lexsort((np.arange(len(p)), -p)) if p[i] > 0]


def first_that_reach(order: list[int], masses: Probabilities, share: float) -> Kept:
    """The shortest beginning of a list whose masses add up to at least a share."""
    sums = np.cumsum([masses[i] for i in order])
    count = next((n for n, total in enumerate(sums, 1) if total >= share), len(order))
    return Kept(frozenset(order[:count]), float(np.abs(sums - share).min()))


def at_least(p: Probabilities, bound: float) -> Kept:
    """All of at least a probability, and always the likeliest."""
    chosen = {int(i) for i in np.flatnonzero(p >= bound)} or {by_probability(p)[0]}
    return Kept(frozenset(chosen), float(np.abs(p[p > 0] / bound - 1).min()))


def top_k(p: Probabilities, count: int) -> Kept:
    return Kept(frozenset(by_probability(p)[:count]), 1.0)


def top_p(p: Probabilities, share: float) -> Kept:
    return first_that_reach(by_probability(p), p, share)


def min_p(p: Probabilities, share: float) -> Kept:
    return at_least(p, share * p.max())


def epsilon(p: Probabilities, cutoff: float) -> Kept:
    return at_least(p, cutoff)


def eta(p: Probabilities, cutoff: float) -> Kept:
    return at_least(p, min(cutoff, np.sqrt(cutoff) * np.exp(-entropy(p))))


def typical_p(p: Probabilities, share: float) -> Kept:
    allowed = np.flatnonzero(p > 0)
    away = np.abs(-np.log(p[allowed]) - entropy(p))
    order = [int(allowed[i]) for i in np.lexsort((allowed, away))]
    kept = first_that_reach(order, p, share)
    # Tokens equally far on either side of the entropy may come in either order.
    gaps = np.diff(np.unique(away))
    return Kept(kept.ids, min(kept.margin, float(gaps.min(initial=1.0))))


def tail_free(p: Probabilities, mass: float) -> Kept:
    order = by_probability(p)
    if len(order) < 3:
        return Kept(frozenset(order), 1.0)
    slopes = np.diff(p[order])
    curvature = np.abs(np.diff(slopes))
    if curvature.sum() < 1e-12:
        return Kept(frozenset(order), 1.0 if curvature.sum() == 0 else 0.0)
    sums = np.cumsum(curvature / curvature.sum())
    count = next((i for i, total in enumerate(sums) if total > mass), len(order))
    return Kept(frozenset(order[: max(count, 1)]), float(np.abs(sums - mass).min()))


def xtc(p: Probabilities, threshold: float) -> Kept:
    above = [i for i in by_probability(p) if p[i] >= threshold]
    gone = set(above[:-1])
    margin = float(np.abs(p[p > 0] / threshold - 1).min())
    return Kept(frozenset(set(by_probability(p)) - gone), margin)


def top_n_sigma(logits: NDArray[np.float32], deviations: float) -> Kept:
    allowed = logits[logits > -np.inf].astype(np.float64)
    bound = allowed.max() - deviations * allowed.std()
    chosen = np.flatnonzero(logits.astype(np.float64) >= bound)
    return Kept(frozenset(chosen.tolist()), float(np.abs(allowed - bound).min()))


Definition = Callable[[Probabilities, float], Kept]
