"""The samplers that cut, against their plain definitions: whole rows and listed candidates."""

import numpy as np
import pytest
import sampler_definitions as definitions
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sampler_definitions import Definition, Kept

from ingot import _native
from ingot.errors import LogitsError
from ingot.sampling import Candidates, Sampler
from ingot.sampling.samplers.cuts import (
    Epsilon,
    Eta,
    MinP,
    TailFree,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)
from ingot.sampling.samplers.draw import Greedy

UNCLEAR = 1e-6  # decisions nearer to their bound may go either way

CUTS: dict[str, tuple[type, Definition, tuple[float, ...]]] = {
    "top_p": (TopP, definitions.top_p, (0.0, 0.1, 0.5, 0.95, 0.999)),
    "min_p": (MinP, definitions.min_p, (0.001, 0.05, 0.5, 1.0)),
    "typical_p": (TypicalP, definitions.typical_p, (0.1, 0.5, 0.9, 0.999)),
    "tail_free": (TailFree, definitions.tail_free, (0.1, 0.5, 0.9, 0.99)),
    "epsilon": (Epsilon, definitions.epsilon, (1e-4, 0.01, 0.3, 0.99)),
    "eta": (Eta, definitions.eta, (1e-4, 0.01, 0.3)),
    "xtc": (lambda threshold: Xtc(1.0, threshold), definitions.xtc, (0.01, 0.1, 0.3, 0.5)),
    "top_k": (lambda k: TopK(int(k)), lambda p, k: definitions.top_k(p, int(k)), (1, 2, 40)),
}
sampled = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def rows(draw: st.DrawFn) -> NDArray[np.float32]:
    """Rows of all sizes and slopes, some with ties, some with banned tokens."""
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    size = draw(st.sampled_from([1, 2, 3, 10, 100, 1500, 5000]))
    row = random.normal(scale=draw(st.sampled_from([0.01, 1.0, 4.0, 30.0])), size=size)
    if draw(st.booleans()):
        row = np.round(row)
    row[random.random(size) < draw(st.sampled_from([0.0, 0.3]))] = -np.inf
    if not (row > -np.inf).any():
        row[random.integers(size)] = 0.0
    return row.astype(np.float32)


def run(sampler: Sampler, row: NDArray[np.float32], listed: bool) -> Candidates:
    candidates = Candidates(row.copy(), np.zeros(0, np.int32))
    if listed:  # in no special order, as other samplers may leave them
        order = np.random.default_rng(1).permutation(len(row))
        candidates.take(order.astype(np.int32), row[order])
    sampler.apply(candidates)
    return candidates


def ids_of(candidates: Candidates) -> frozenset[int]:
    return frozenset(candidates.candidate_ids()[candidates.logits > -np.inf].tolist())


def check(candidates: Candidates, row: NDArray[np.float32], kept: Kept) -> None:
    assume(kept.margin > UNCLEAR)
    assert ids_of(candidates) == kept.ids
    assert candidates.logits.tolist() == row[candidates.candidate_ids()].tolist()


@pytest.mark.parametrize("name", CUTS)
@sampled
@given(row=rows(), listed=st.booleans(), data=st.data())
def test_cuts_keep_what_their_definition_keeps(
    name: str, row: NDArray[np.float32], listed: bool, data: st.DataObject
) -> None:
    make, definition, settings_ = CUTS[name]
    setting = data.draw(st.sampled_from(settings_))
    if name == "xtc":
        # It draws at random whether to cut: probability 1 always does.
        assert Xtc(1.0, setting).chance == 1.0
    check(run(make(setting), row, listed), row, definition(definitions.softmax(row), setting))


@sampled
@given(row=rows(), listed=st.booleans(), deviations=st.sampled_from([0.1, 1.0, 3.0]))
def test_top_n_sigma(row: NDArray[np.float32], listed: bool, deviations: float) -> None:
    kept = definitions.top_n_sigma(row, deviations)
    if len(np.unique(row[row > -np.inf])) > 1:
        check(run(TopNSigma(deviations), row, listed), row, kept)
    else:  # all equal: the largest are all of them
        assert ids_of(run(TopNSigma(deviations), row, listed)) == frozenset(
            np.flatnonzero(row > -np.inf).tolist()
        )


@sampled
@given(row=rows(), listed=st.booleans(), least=st.sampled_from([2, 5, 400]), data=st.data())
def test_cuts_leave_at_least_as_many_as_asked(
    row: NDArray[np.float32], listed: bool, least: int, data: st.DataObject
) -> None:
    sampler = data.draw(
        st.sampled_from(
            [
                TopP(0.01, least),
                MinP(1.0, least),
                TypicalP(0.01, least),
                TailFree(0.01, least),
                Epsilon(0.99, least),
                Eta(0.3, least),
            ]
        )
    )
    available = int(np.count_nonzero(row > -np.inf))
    found = run(sampler, row, listed)
    assert np.count_nonzero(found.logits > -np.inf) >= min(least, available)


def test_least_keeps_the_likeliest() -> None:
    row = np.array([0.0, 3.0, 9.0, 5.0, 1.0], np.float32)
    for sampler in (TopP(0.01, 3), MinP(1.0, 3), Epsilon(0.99, 3), TailFree(0.01, 3)):
        for listed in (False, True):
            assert ids_of(run(sampler, row, listed)) == {1, 2, 3}, sampler


@pytest.mark.parametrize("listed", [False, True])
def test_greedy_takes_the_likeliest_and_the_first_among_equals(listed: bool) -> None:
    row = np.array([-np.inf, 1.0, 7.0, 7.0, 2.0], np.float32)
    found = run(Greedy(), row, listed)
    assert found.token == 2
    assert found.candidate_ids().tolist() == [2]


def test_top_k_lists_the_likeliest_first() -> None:
    row = np.array([1.0, 5.0, 3.0, 5.0, -np.inf], np.float32)
    for listed in (False, True):
        found = run(TopK(10), row, listed)
        assert found.candidate_ids().tolist() == [1, 3, 2, 0]
        assert found.logits.tolist() == [5.0, 5.0, 3.0, 1.0]


def test_a_nucleus_of_many_tokens_is_found_in_a_flat_row() -> None:
    row = np.linspace(0.0, 0.001, 20000, dtype=np.float32)
    found = run(TopP(0.9, 1), row, listed=False)
    assert len(found) == pytest.approx(18000, abs=20)
    assert len(run(TypicalP(0.9, 1), row, listed=False)) == pytest.approx(18000, abs=20)


@pytest.mark.parametrize("listed", [False, True])
def test_what_lies_exactly_at_the_bound_stays(listed: bool) -> None:
    row = np.array([-1.0, 0.0, -2.0, -1.0], np.float32)
    candidates = Candidates(row, np.zeros(0, np.int32))
    if listed:
        candidates.take(np.arange(4, dtype=np.int32), row.copy())
    candidates.keep_near_top(1.0, least=3)
    assert candidates.candidate_ids().tolist() == [0, 1, 3], "in the order they had"
    equal = np.array([3.0, 5.0, 5.0, 1.0], np.float32)
    assert ids_of(run(MinP(1.0), equal, listed)) == {1, 2}


@pytest.mark.parametrize("sampler", [TopP(0.01, 3000), TypicalP(0.01, 3000)])
def test_many_tokens_stay_on_request(sampler: Sampler) -> None:
    row = np.random.default_rng(2).normal(size=5000).astype(np.float32)
    for listed in (False, True):
        assert len(run(sampler, row, listed)) == 3000


@pytest.mark.parametrize("size", [255, 256, 257, 1023, 1024, 1025, 2048])
def test_rows_as_long_as_what_is_sorted_first(size: int) -> None:
    row = np.random.default_rng(size).normal(scale=0.5, size=size).astype(np.float32)
    for name, share in (("top_p", 0.97), ("top_p", 0.3), ("typical_p", 0.97), ("typical_p", 0.3)):
        make, definition, _ = CUTS[name]
        kept = definition(definitions.softmax(row), share)
        assert kept.margin > UNCLEAR / 100
        assert ids_of(run(make(share), row, listed=False)) == kept.ids, name


def test_all_of_the_curvature_has_no_tail() -> None:
    row = np.array([5.0, 3.0, 2.5, 0.0, -1.0], np.float32)
    assert ids_of(run(TailFree(1.0), row, listed=False)) == {0, 1, 2, 3, 4}
    assert ids_of(run(TailFree(0.99), row[:3], listed=False)) == {0}


def test_xtc_counts_a_token_at_its_threshold() -> None:
    assert ids_of(run(Xtc(1.0, 0.5), np.zeros(2, np.float32), listed=False)) == {1}


def test_xtc_cuts_by_a_random_number_for_itself() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    for place in range(40):
        candidates = Candidates(row.copy(), np.zeros(0, np.int32), seed=5, generated=place)
        Xtc(0.25, 0.15).apply(candidates)
        assert (len(candidates) == 2) == (_native.uniform_at(5, place, 1) < 0.25)


def test_xtc_cuts_as_often_as_its_probability_says() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    cut = 0
    for place in range(2000):
        candidates = Candidates(row.copy(), np.zeros(0, np.int32), seed=5, generated=place)
        Xtc(0.25, 0.15).apply(candidates)
        kept = ids_of(candidates)
        assert kept in ({0, 1, 2, 3}, {2, 3})
        cut += kept == {2, 3}
    assert cut == pytest.approx(500, abs=70)  # 3.6 standard deviations


def test_xtc_leaves_as_many_as_asked() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert ids_of(run(Xtc(1.0, 0.15, 2), row, listed=False)) == {2, 3}
    assert ids_of(run(Xtc(1.0, 0.15, 3), row, listed=False)) == {0, 1, 2, 3}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    "sampler",
    [
        TopK(3), Greedy(), TopP(0.5), MinP(0.5), TypicalP(0.5), TailFree(0.5), Epsilon(0.1),
        Eta(0.1), TopNSigma(1.0), Xtc(1.0, 0.1),
    ],
    ids=lambda sampler: type(sampler).__name__,
)  # fmt: skip
def test_rows_without_a_token_to_choose_are_refused(sampler: Sampler, listed: bool) -> None:
    with pytest.raises(LogitsError, match="banned"):
        run(sampler, np.full(300, -np.inf, np.float32), listed)
    if not listed:
        broken = np.zeros(300, np.float32)
        broken[77] = np.nan
        with pytest.raises(LogitsError, match="NaN"):
            run(sampler, broken, listed)


@pytest.mark.parametrize(
    "sampler",
    [
        TopK(3), Greedy(), TopP(0.5), MinP(0.5), TypicalP(0.5), TailFree(0.5), Epsilon(0.1),
        Eta(0.1), TopNSigma(1.0), Xtc(1.0, 0.1),
    ],
    ids=lambda sampler: type(sampler).__name__,
)  # fmt: skip
@pytest.mark.parametrize("listed", [False, True])
def test_the_only_candidate_stays(sampler: Sampler, listed: bool) -> None:
    row = np.full(50, -np.inf, np.float32)
    row[17] = -3.0
    assert ids_of(run(sampler, row, listed)) == {17}


@pytest.mark.parametrize("listed", [False, True])
def test_one_token_is_enough_if_nobody_asks_for_more(listed: bool) -> None:
    row = np.array([0.0, 5.0, 1.0], np.float32)
    assert ids_of(run(TopNSigma(0.1), row, listed)) == {1}
    assert ids_of(run(TopNSigma(0.0), row, listed)) == {1}


@pytest.mark.parametrize(
    "sampler",
    [
        TopK(3), Greedy(), TopP(0.9), MinP(0.2), TypicalP(0.5), TailFree(0.9), Epsilon(0.1),
        Eta(0.1), TopNSigma(1.0), Xtc(1.0, 0.1),
    ],
    ids=lambda sampler: type(sampler).__name__,
)  # fmt: skip
def test_tokens_that_were_cut_before_have_no_say(sampler: Sampler) -> None:
    row = np.random.default_rng(4).normal(scale=2, size=60).astype(np.float32)
    left = np.argsort(-row)[20:50].astype(np.int32)  # without the likeliest
    candidates = Candidates(row.copy(), np.zeros(0, np.int32))
    candidates.take(left, row[left])
    sampler.apply(candidates)
    alone = run(sampler, row[left], listed=False)
    assert ids_of(candidates) == set(left[alone.candidate_ids()].tolist())
