"""Log-probabilities of prompts, of chosen tokens and of alternatives."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.errors import LogitsError
from ingot.sampling import (
    ChainBuilder,
    SampledToken,
    SamplingParams,
    TokenSampler,
    arithmetic,
    logprobs_of,
    sample_tokens,
)


def log_softmax(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = rows.astype(np.float64) - rows.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_logprobs_of_a_prompt(threads: int) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(scale=6, size=(50, 3001)).astype(np.float32)
    rows[random.random(rows.shape) < 0.1] = -np.inf
    ids = random.integers(0, 3001, 50)
    expected = log_softmax(rows)[np.arange(50), ids]
    np.testing.assert_allclose(logprobs_of(rows, ids, threads), expected, rtol=1e-13, atol=1e-13)
    assert logprobs_of(rows[:0], []).shape == (0,)


def test_logprobs_do_not_overflow() -> None:
    rows = np.array([[1e30, -1e30, 1e30], [-1e38, -1e38, -3e38]], np.float32)
    assert logprobs_of(rows, [0, 1]).tolist() == [pytest.approx(-np.log(2))] * 2


def test_what_does_not_go_together_is_refused() -> None:
    rows = np.zeros((2, 5), np.float32)
    for ids in ([1], [1, 5], [-1, 0]):
        with pytest.raises(LogitsError):
            logprobs_of(rows, ids)
    rows[1, 2] = np.nan
    with pytest.raises(LogitsError, match="NaN"):
        logprobs_of(rows, [0, 0])


def test_logprobs_before_and_behind_the_chain(builder: ChainBuilder) -> None:
    row = np.random.default_rng(3).normal(scale=2, size=264).astype(np.float32)
    chain = builder.build(SamplingParams(seed=5, logit_bias={9: 30.0, 10: False}, top_k=4))
    results = sample_tokens(
        [TokenSampler(chain, logprobs=True, chain_logprobs=True, count=3)], row.copy()[np.newaxis]
    )
    choice = results[0]
    assert isinstance(choice, SampledToken)
    assert choice.token == 9
    expected = log_softmax(row)
    order = np.argsort(-row)[:3]
    before, after = choice.logprobs, choice.chain_logprobs
    assert before is not None
    assert after is not None
    assert before.token == 9
    assert before.logprob == pytest.approx(expected[9], rel=1e-12)
    assert [id for id, _ in before.top] == order.tolist()
    assert [p for _, p in before.top] == pytest.approx(expected[order].tolist(), rel=1e-12)
    assert after.top == ((9, 0.0),)  # min-p keeps only the token that was raised
    assert after.logprob == 0.0


def test_banned_tokens_are_not_among_the_likeliest(builder: ChainBuilder) -> None:
    row = np.zeros(264, np.float32)
    bans = dict.fromkeys(range(2, 264), False)
    params = SamplingParams(seed=5, logit_bias=bans, top_k=0, top_p=1, min_p=0)
    chain = builder.build(params)
    choice = sample_tokens([TokenSampler(chain, chain_logprobs=True, count=4)], row[np.newaxis])[0]
    assert isinstance(choice, SampledToken)
    assert choice.chain_logprobs is not None
    assert choice.chain_logprobs.top == ((0, -np.log(2)), (1, -np.log(2)))


def test_logprobs_behind_the_chain_are_normalized(builder: ChainBuilder) -> None:
    row = np.random.default_rng(3).normal(size=264).astype(np.float32)
    chain = builder.build(SamplingParams(seed=5, top_k=5, top_p=1, min_p=0, temperature=0.5))
    choice = sample_tokens(
        [TokenSampler(chain, chain_logprobs=True, count=9)], row.copy()[np.newaxis]
    )[0]
    assert isinstance(choice, SampledToken)
    assert choice.logprobs is None
    assert choice.chain_logprobs is not None
    order = np.argsort(-row)[:5]
    expected = log_softmax(row[order] / np.float32(0.5))
    assert [id for id, _ in choice.chain_logprobs.top] == order.tolist()
    found = [p for _, p in choice.chain_logprobs.top]
    assert found == pytest.approx(expected.tolist(), rel=1e-6)
    assert choice.chain_logprobs.logprob == found[order.tolist().index(choice.token)]


def test_no_alternatives_are_listed_unless_asked(builder: ChainBuilder) -> None:
    chain = builder.build(SamplingParams(seed=5))
    rows = np.zeros((1, 264), np.float32)
    choice = sample_tokens([TokenSampler(chain, logprobs=True)], rows)[0]
    assert isinstance(choice, SampledToken)
    assert choice.logprobs is not None
    assert choice.logprobs.top == ()
    assert choice.logprobs.logprob == pytest.approx(-np.log(264))
    assert choice.chain_logprobs is None


def test_what_the_parameters_want_to_know(builder: ChainBuilder) -> None:
    for fields, expected in (
        ({}, (False, False, 0)),
        ({"logprobs": True}, (True, False, 0)),
        ({"n_probs": 1}, (True, False, 1)),
        ({"n_probs": 3}, (True, False, 3)),
        ({"n_probs": 3, "post_sampling_probs": True}, (True, True, 3)),
        ({"post_sampling_probs": True}, (False, False, 0)),
    ):
        params = SamplingParams(**fields)
        made = TokenSampler.of(builder.build(params), params)
        assert (made.logprobs, made.chain_logprobs, made.count) == expected


def test_the_logarithm_of_nothing() -> None:
    assert arithmetic.log(0.0) == -np.inf
    assert arithmetic.log(1.0) == 0.0
