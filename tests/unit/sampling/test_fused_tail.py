"""The usual end of a chain in one native call: the same tokens as the samplers one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import _native
from ingot.errors import LogitsError
from ingot.sampling import SampledToken, Sampler, SamplerChain, TokenSampler, sample_tokens
from ingot.sampling.fused_tail import FusedTail, TailRequest, sample_tails
from ingot.sampling.samplers.cuts import MinP, TopK, TopP, Xtc
from ingot.sampling.samplers.draw import Draw, Greedy
from ingot.sampling.samplers.logit_bias import LogitBias
from ingot.sampling.samplers.temperature import Temperature


@st.composite
def tails(draw: st.DrawFn) -> list[Sampler]:
    least = draw(st.sampled_from([1, 3]))
    samplers: list[Sampler] = [TopK(draw(st.sampled_from([1, 2, 5, 40, 3000])))]
    if draw(st.booleans()):
        samplers.append(TopP(draw(st.sampled_from([0.0, 0.3, 0.95, 0.9999])), least))
    if draw(st.booleans()):
        samplers.append(MinP(draw(st.sampled_from([0.001, 0.05, 0.6, 1.0])), least))
    if draw(st.booleans()):
        samplers.append(Temperature(draw(st.sampled_from([0.0, 1e-30, 0.3, 0.8, 2.5]))))
    return [*samplers, Draw()]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(samplers=tails(), seed=st.integers(0, 10**6), size=st.sampled_from([1, 2, 50, 2000]))
def test_the_tokens_are_those_of_the_samplers(
    samplers: list[Sampler], seed: int, size: int
) -> None:
    random = np.random.default_rng(seed)
    row = np.round(random.normal(scale=3, size=size), 1).astype(np.float32)
    row[random.random(size) < 0.2] = -np.inf
    row[0] = 1.0
    chain = SamplerChain(samplers, seed=seed)
    assert chain.tail is not None
    requests = [TailRequest(0, chain.tail, seed, generated) for generated in range(6)]
    tokens = []
    for _ in requests:
        tokens.append(chain.apply(row.copy()).token)
        chain.accept(tokens[-1])
    assert sample_tails(requests, row[np.newaxis], threads=1) == tokens


def test_which_samplers_are_a_tail() -> None:
    everything = [TopK(4), TopP(0.9, 2), MinP(0.1, 2), Temperature(0.5), Draw()]
    tail = FusedTail.of(everything)
    assert tail is not None
    assert (tail.count, tail.share, tail.temperature, tail.least) == (4, 0.9, 0.5, 2)
    assert FusedTail.of([Greedy()]) == FusedTail(1)
    assert FusedTail.of([TopK(4), Draw()]) == FusedTail(4)
    for other in (
        [],
        [Draw()],
        [TopK(4)],
        [TopP(0.9), TopK(4), Draw()],
        [TopK(4), MinP(0.1), TopP(0.9), Draw()],
        [TopK(4), Temperature(0.5), TopP(0.9), Draw()],
        [TopK(4), TopP(0.9, 1), MinP(0.1, 2), Draw()],
        [TopK(4), Xtc(1.0, 0.1), Draw()],
        [TopK(4), Greedy()],
    ):
        assert FusedTail.of(other) is None, other


def test_what_cuts_before_it_is_no_part_of_it() -> None:
    assert SamplerChain([LogitBias({1: 1.0}), TopK(4), Draw()], seed=1).tail == FusedTail(4)
    assert SamplerChain([MinP(0.1), TopK(4), Draw()], seed=1).tail is None


def test_editors_run_before_it() -> None:
    rows = np.zeros((2, 9), np.float32)
    chains = [SamplerChain([LogitBias({i + 3: 5.0}), Greedy()], seed=1) for i in range(2)]
    choices = sample_tokens([TokenSampler(chain) for chain in chains], rows)
    assert choices == [SampledToken(3), SampledToken(4)]


def test_rows_without_a_token_are_refused() -> None:
    rows = np.zeros((3, 300), np.float32)
    rows[0, 200] = np.nan
    rows[1] = -np.inf
    requests = [TailRequest(row, FusedTail(5), 1, 0) for row in range(3)]
    first, second, third = sample_tails(requests, rows, threads=1)
    assert isinstance(first, LogitsError)
    assert "NaN" in str(first)
    assert isinstance(second, LogitsError)
    assert "banned" in str(second)
    assert third in range(5)


def test_arrays_that_do_not_fit_are_refused() -> None:
    rows, one, numbers = np.zeros((2, 8), np.float32), np.ones(1, np.int32), np.ones((1, 4))
    tokens = np.zeros(1, np.int32)
    for which, counts, least, four in (
        (one + 1, one, one, numbers),
        (one, one - 1, one, numbers),
        (one, one, one - 1, numbers),
        (one, one, one, numbers[:, :3].copy()),
        (one, np.ones(2, np.int32), one, numbers),
    ):
        with pytest.raises(ValueError, match="row"):
            _native.sample_rows(rows, which, counts, least, four, tokens, 1)


def test_as_many_requests_as_rows_are_needed() -> None:
    chain = SamplerChain([Greedy()], seed=1)
    with pytest.raises(LogitsError, match="1 requests for 2 rows"):
        sample_tokens([TokenSampler(chain)], np.zeros((2, 5), np.float32))
    for rows in (np.zeros((1, 5)), np.zeros((5, 1), np.float32).T[:, ::2]):
        with pytest.raises(LogitsError, match="32-bit floats"):
            sample_tokens([TokenSampler(chain)], rows)
