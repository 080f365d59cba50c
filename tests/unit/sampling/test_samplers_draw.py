"""The samplers that pick a token: the draw, mirostat, adaptive-p, infill."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot import _native
from ingot.errors import LogitsError
from ingot.sampling import Candidates, Sampler
from ingot.sampling.samplers.draw import AdaptiveP, Draw
from ingot.sampling.samplers.infill import Infill
from ingot.sampling.samplers.mirostat import Mirostat1, Mirostat2

NONE = np.zeros(0, np.int32)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def sampled(sampler: Sampler, row: NDArray[np.float32], place: int, seed: int = 3) -> Candidates:
    candidates = Candidates(row.copy(), NONE, seed=seed, generated=place)
    sampler.apply(candidates)
    return candidates


def chi_square(counts: Counter[int], p: NDArray[np.float64], draws: int) -> tuple[float, float]:
    """The statistic, over tokens with 5 expected draws and the rest, and its 99.9% point."""
    expected = p * draws
    often = np.flatnonzero(expected >= 5)
    observed = [counts[int(i)] for i in often]
    rest = draws - sum(observed), draws - expected[often].sum()
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected[often], strict=True))
    if rest[1] >= 5:
        statistic += (rest[0] - rest[1]) ** 2 / rest[1]
    freedom = len(often) - (rest[1] < 5)
    # Wilson and Hilferty's approximation of the quantile.
    return statistic, freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("size", [2, 7, 300, 5000])
def test_draws_follow_the_probabilities(size: int) -> None:
    row = np.random.default_rng(size).normal(scale=2, size=size).astype(np.float32)
    draws = 20000
    counts = Counter(_native.draw(row, _native.uniform_at(11, n, 0)) for n in range(draws))
    statistic, bound = chi_square(counts, softmax(row), draws)
    assert statistic < bound
    wrong, bound = chi_square(counts, softmax(row / 1.1), draws)  # the test can fail
    assert wrong > bound


def test_the_draw_takes_its_number_from_seed_and_place() -> None:
    row = np.random.default_rng(0).normal(size=400).astype(np.float32)
    tokens = [sampled(Draw(), row, place).token for place in range(50)]
    assert tokens == [sampled(Draw(), row, place).token for place in range(50)]
    assert tokens != [sampled(Draw(), row, place, seed=4).token for place in range(50)]
    expected = [_native.draw(row, _native.uniform_at(3, place, 0)) for place in range(50)]
    assert tokens == expected


def test_without_a_seed_and_a_place_they_are_zero() -> None:
    candidates = Candidates(np.zeros(3, np.float32), NONE)
    assert candidates.uniform(4) == _native.uniform_at(0, 0, 4)


def test_the_draw_among_listed_candidates_gives_the_token() -> None:
    candidates = Candidates(np.zeros(9, np.float32), NONE, seed=1)
    candidates.take(np.array([7, 2], np.int32), np.array([-np.inf, 0.0], np.float32))
    Draw().apply(candidates)
    assert candidates.token == 2


def test_there_is_nothing_to_draw() -> None:
    for row, reason in (([-np.inf] * 3, "banned"), ([0.0, np.nan], "NaN"), ([np.inf, 0.0], "NaN")):
        with pytest.raises(LogitsError, match=reason):
            sampled(Draw(), np.array(row, np.float32), 0)


# Mirostat


def zipf_count(p: NDArray[np.float64], mu: float) -> int:
    """The number of tokens of version 1, as the paper gives it."""
    ordered = np.sort(p[p > 0])[::-1][:100]
    ranks = np.arange(1, len(ordered))
    t = np.log((ranks + 1) / ranks)
    b = np.log(ordered[:-1] / ordered[1:])
    s = (t * b).sum() / (t * t).sum()
    e = s - 1
    return max(1, int(((e * 2**mu) / (1 - len(p) ** -e)) ** (1 / s)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), tau=st.sampled_from([1.0, 3.0, 5.0]))
def test_mirostat_1_keeps_the_count_of_the_paper(seed: int, tau: float) -> None:
    row = np.random.default_rng(seed).normal(scale=4, size=700).astype(np.float32)
    found = sampled(Mirostat1(tau, 0.1), row, 0)
    expected = zipf_count(softmax(row), 2 * tau)
    assert len(found) == pytest.approx(min(expected, 700), abs=1)
    assert found.token in found.candidate_ids()
    order = np.lexsort((np.arange(700), -row))
    assert found.candidate_ids().tolist() == order[: len(found)].tolist()


def test_mirostat_1_estimates_from_the_hundred_likeliest() -> None:
    row = -0.5 * np.log(np.arange(1, 701))
    row[100:] -= 50.0
    found = sampled(Mirostat1(4.0, 0.1), row.astype(np.float32), 0)
    assert len(found) == zipf_count(softmax(row), 8.0) == 25


def test_mirostat_1_of_two_candidates() -> None:
    row = np.array([0.0, 3.0], np.float32)
    assert sampled(Mirostat1(0.1, 0.1), row, 0).candidate_ids().tolist() == [1]
    assert sampled(Mirostat1(3.0, 0.1), row, 0).candidate_ids().tolist() == [1, 0]


def test_mirostat_1_of_probabilities_that_follow_zipfs_law() -> None:
    """Of slope 1, to nine digits, for which the paper's formula is 0 / 0."""
    row = np.array([0.0, -0.693158745765686, -1.0986040830612183], np.float32)
    for mu, count in ((1.0, 1), (1.5, 2)):  # 2 ** mu / log(3) tokens
        assert len(sampled(Mirostat1(mu / 2, 0.1), row, 0)) == count


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 999), tau=st.sampled_from([0.1, 1.0, 3.0]))
def test_mirostat_2_leaves_out_what_surprises_more_than_its_bound(seed: int, tau: float) -> None:
    row = np.random.default_rng(seed).normal(scale=4, size=300).astype(np.float32)
    p = softmax(row)
    found = sampled(Mirostat2(tau, 0.1), row, 0)
    expected = set(np.flatnonzero(-np.log2(p) <= 2 * tau).tolist()) or {int(row.argmax())}
    assert set(found.candidate_ids().tolist()) == expected


@pytest.mark.parametrize("kind", [Mirostat1, Mirostat2])
def test_mirostat_moves_its_bound_by_the_surprise(kind: type[Mirostat1] | type[Mirostat2]) -> None:
    row = np.random.default_rng(5).normal(scale=3, size=300).astype(np.float32)
    sampler = kind(3.0, 0.2)
    assert sampler.mu == 6.0
    found = sampled(sampler, row, 0)
    rest = softmax(found.logits)[found.candidate_ids().tolist().index(found.token)]
    sampler.accept(found.token)
    assert sampler.mu == pytest.approx(6.0 - 0.2 * (-np.log2(rest) - 3.0))
    copy = sampler.clone()
    assert copy.mu == sampler.mu
    before = sampler.mu
    sampled(sampler, row, 1)
    sampler.accept(-1)  # another token was taken: nothing is known of its surprise
    sampler.accept(found.token)
    assert sampler.mu == before
    sampler.reset()
    assert (sampler.mu, copy.mu) == (6.0, before)


@pytest.mark.parametrize("kind", [Mirostat1, Mirostat2])
def test_mirostat_reaches_its_target(kind: type[Mirostat1] | type[Mirostat2]) -> None:
    random = np.random.default_rng(1)
    sampler, surprises = kind(2.5, 0.1), []
    for place in range(600):
        row = random.normal(scale=2.5, size=400).astype(np.float32)
        found = sampled(sampler, row, place)
        rest = softmax(found.logits)[found.candidate_ids().tolist().index(found.token)]
        surprises.append(-np.log2(rest))
        sampler.accept(found.token)
    assert np.mean(surprises[100:]) == pytest.approx(2.5, abs=0.15)


@pytest.mark.parametrize("kind", [Mirostat1, Mirostat2])
def test_mirostat_with_one_candidate_or_none(kind: type[Mirostat1] | type[Mirostat2]) -> None:
    row = np.full(40, -np.inf, np.float32)
    with pytest.raises(LogitsError, match="banned"):
        sampled(kind(2.0, 0.1), row, 0)
    row[9] = 1.0
    assert sampled(kind(2.0, 0.1), row, 0).token == 9
    assert sampled(kind(2.0, 0.1), np.zeros(40, np.float32), 0).token in range(40)


# Adaptive-p


def test_adaptive_p_makes_a_hump_around_its_target() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    p = softmax(row)
    away = np.abs(p - 0.3) / 0.3
    expected = softmax((5.0 - 10.0 * away**2 / (1 + away)).astype(np.float32))
    counts = Counter(sampled(AdaptiveP(0.3, 0.9), row, place).token for place in range(5000))
    statistic, bound = chi_square(counts, expected, 5000)
    assert statistic < bound


def test_adaptive_p_aims_the_other_way_after_a_likely_token() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampler = AdaptiveP(0.3, 0.5)
    assert sampler.aim == pytest.approx(0.3)
    found = sampled(sampler, row, 0)
    before = softmax(row)[found.token]
    sampler.accept(found.token)
    average = (before + 0.5 * (0.3 / 0.5)) / (1 + 0.5 / 0.5)
    assert sampler.aim == pytest.approx(2 * 0.3 - average)
    copy, aim = sampler.clone(), sampler.aim
    sampled(sampler, row, 1)
    sampler.accept(-1)
    assert sampler.aim == aim
    sampler.reset()
    assert (sampler.aim, copy.aim) == (pytest.approx(0.3), aim)


def test_adaptive_p_forgets_the_tokens_before_slowly() -> None:
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampler = AdaptiveP(0.3, 0.9)
    total, weight, tokens = 0.3 / 0.1, 1 / 0.1, set()
    for place in range(12):
        token = sampled(sampler, row, place).token
        sampler.accept(token)
        total, weight = softmax(row)[token] + 0.9 * total, 1 + 0.9 * weight
        assert sampler.aim == pytest.approx(0.6 - total / weight)
        tokens.add(token)
    assert len(tokens) > 1


def test_adaptive_p_never_takes_what_is_banned() -> None:
    row = np.array([0.0, -np.inf, 0.1, -np.inf], np.float32)
    tokens = {sampled(AdaptiveP(0.01, 0.9), row, place).token for place in range(200)}
    assert tokens == {0, 2}


# Infill

TEXTS = [b"a", b"ab", b"b", b"", b"xyz"]


def infill(p: list[float]) -> list[int]:
    candidates = Candidates(np.log(np.array(p, np.float32)), NONE)
    Infill([3], 3, TEXTS.__getitem__).apply(candidates)
    return candidates.candidate_ids().tolist()


def test_infill_ends_where_the_end_is_likely() -> None:
    assert infill([0.4, 0.2, 0.1, 0.25, 0.05]) == [3]


def test_infill_counts_tokens_that_begin_alike_together() -> None:
    # "a" and "ab" reach 0.5 together: the likelier of them stays, and the end with it.
    assert infill([0.19, 0.31, 0.199, 0.001, 0.3]) == [1, 4, 3]
    assert infill([0.31, 0.19, 0.199, 0.001, 0.3]) == [0, 4, 3]
    # Of two that stay, one must have a third of what is left.
    assert infill([0.25, 0.34, 0.199, 0.001, 0.21]) == [1, 3]


def test_infill_ends_where_nothing_is_likely() -> None:
    texts = [bytes([65 + i]) for i in range(10)]
    row = np.log(np.full(10, 0.1, np.float32))
    candidates = Candidates(row, NONE)
    Infill([77], 77, texts.__getitem__).apply(candidates)
    assert candidates.candidate_ids().tolist() == [77]
    Draw().apply(candidates)
    assert candidates.token == 77
