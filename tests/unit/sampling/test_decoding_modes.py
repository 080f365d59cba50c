"""Guidance, token healing and beam search, without a model."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot.errors import LogitsError, SamplingError
from ingot.sampling import BeamSearch, Candidates, guide
from ingot.sampling.samplers.token_healing import TokenHealing, TokenIndex


def log_softmax(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = rows.astype(np.float64) - rows.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# Guidance


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0, 1.7, 4.0])
def test_guidance_is_that_of_the_log_probabilities(scale: float) -> None:
    random = np.random.default_rng(1)
    row, other = random.normal(scale=3, size=(2, 500)).astype(np.float32)
    p, q = log_softmax(row), log_softmax(other)
    expected = log_softmax((q + scale * (p - q)).astype(np.float64))
    made = guide(row, other, scale)
    assert made is row
    np.testing.assert_allclose(log_softmax(made), expected, rtol=1e-4, atol=1e-4)


def test_what_is_banned_stays_banned() -> None:
    row = np.array([-np.inf, 1.0, -np.inf, 2.0], np.float32)
    other = np.array([-np.inf, 0.0, 5.0, 1.0], np.float32)
    assert guide(row, other, 2.0).tolist() == [-np.inf, 2.0, -np.inf, 3.0]
    with pytest.raises(LogitsError, match="the shapes of the logits differ"):
        guide(row, other[:3], 2.0)


# Token healing

TEXTS = [b"h", b"ht", b"http", b"http://", b"tp", b"t", b"p", b"x", b"hello", b":", b"https"]
INDEX = TokenIndex({text: id for id, text in enumerate(TEXTS)})


def allowed(sampler: TokenHealing) -> set[bytes]:
    candidates = Candidates(np.zeros(len(TEXTS), np.float32), np.zeros(0, np.int32))
    sampler.apply(candidates)
    return {TEXTS[i] for i in np.flatnonzero(candidates.logits > -np.inf)}


def test_only_what_goes_on_as_the_prompt_ended_is_allowed() -> None:
    healing = TokenHealing(b"http", INDEX)
    assert allowed(healing) == {b"h", b"ht", b"http", b"http://", b"https"}
    copy = healing.clone()
    healing.accept(TEXTS.index(b"ht"))
    assert healing.left == b"tp"
    assert allowed(healing) == {b"t", b"tp"}
    healing.accept(TEXTS.index(b"tp"))
    assert allowed(healing) == set(TEXTS)
    assert allowed(copy) == {b"h", b"ht", b"http", b"http://", b"https"}
    copy.accept(TEXTS.index(b"http://"))
    assert allowed(copy) == set(TEXTS)
    healing.reset()
    assert healing.left == b"http"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(begun=st.binary(min_size=1, max_size=5).map(lambda b: bytes(c % 3 + 97 for c in b)))
def test_tokens_that_fit_a_beginning(begun: bytes) -> None:
    texts = [bytes(t) for n in (1, 2, 3) for t in product(b"abc", repeat=n)]
    index = TokenIndex({text: id for id, text in enumerate(texts)})
    expected = {t for t in texts if t.startswith(begun) or begun.startswith(t)}
    assert {texts[id] for id in index.fitting(begun)} == expected


# Beam search: a model whose logits depend on the last two tokens.

ENDS = {0}


class Model:
    def __init__(self, vocabulary: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._rows = random.normal(scale=2, size=(vocabulary, vocabulary, vocabulary))

    def logits(self, tokens: tuple[int, ...]) -> NDArray[np.float32]:
        first, second = (0, 0, *tokens)[-2:]
        return self._rows[first, second].astype(np.float32)


def search(
    model: Model, width: int, most: int, penalty: float, ends: set[int] = ENDS
) -> BeamSearch:
    beams = BeamSearch(width, ends, max_tokens=most, length_penalty=penalty)
    while not beams.done:
        before = beams.beams
        rows = np.stack([model.logits(beam.tokens) for beam in before])
        moves = beams.step(rows)
        made = [(*before[move.parent].tokens, move.token) for move in moves]
        assert made == [beam.tokens for beam in beams.beams]
    return beams


def greedy(model: Model, most: int) -> tuple[int, ...]:
    tokens: tuple[int, ...] = ()
    while len(tokens) < most:
        token = int(model.logits(tokens).argmax())
        if token in ENDS:
            break
        tokens = (*tokens, token)
    return tokens


@pytest.mark.parametrize("seed", range(8))
def test_one_beam_is_greedy(seed: int) -> None:
    model = Model(6, seed)
    assert search(model, 1, 12, 1.0).best()[0].tokens == greedy(model, 12)


@pytest.mark.parametrize("seed", range(6))
def test_beams_wide_enough_find_the_likeliest_text(seed: int) -> None:
    """Among all texts of up to four tokens, by brute force."""
    vocabulary, most = 4, 4
    model = Model(vocabulary, seed)

    def logprob(tokens: tuple[int, ...]) -> float:
        return sum(
            float(log_softmax(model.logits(tokens[:place]))[token])
            for place, token in enumerate(tokens)
        )

    texts = [t for n in range(most) for t in product(range(1, vocabulary), repeat=n)]
    full = list(product(range(1, vocabulary), repeat=most))
    ended = {t: logprob((*t, 0)) for t in texts}
    going_on = {t: logprob(t) for t in full}
    found = search(model, 200, most, 0.0).best()
    by_tokens = {beam.tokens: beam.logprob for beam in found}
    for expected in (ended, going_on):
        best = max(expected, key=lambda tokens: expected[tokens])
        assert by_tokens[best] == pytest.approx(expected[best], rel=1e-9)
    assert found[0].tokens == max(ended, key=lambda tokens: ended[tokens])


def test_more_beams_find_likelier_texts() -> None:
    gains = []
    for seed in range(20):
        model = Model(8, seed)
        one, four = (search(model, width, 8, 1.0, set()).best()[0].logprob for width in (1, 4))
        gains.append(four - one)
    assert np.mean(gains) > 0.3


def test_the_length_penalty_prefers_longer_texts() -> None:
    lengths = []
    for penalty in (0.0, 3.0):
        found = [search(Model(6, seed), 4, 10, penalty).best()[0] for seed in range(20)]
        lengths.append(np.mean([len(beam.tokens) for beam in found]))
    assert lengths[1] > lengths[0]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SamplingError, match="beam width is 0"):
        BeamSearch(0, ENDS, max_tokens=3)
    beams = BeamSearch(2, ENDS, max_tokens=3)
    with pytest.raises(LogitsError, match="2 rows of logits for 1 texts"):
        beams.step(np.zeros((2, 5), np.float32))
    row = np.zeros((1, 5), np.float32)
    row[0, 2] = np.nan
    with pytest.raises(LogitsError, match="NaN"):
        beams.step(row)


def test_ends_among_the_best_leave_as_many_to_go_on() -> None:
    row = np.array([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]], np.float32)
    beams = BeamSearch(3, {0, 1}, max_tokens=3)
    assert [move.token for move in beams.step(row)] == [2, 3, 4]
    assert not beams.done
    assert len([beam for beam in beams.best() if beam.tokens == ()]) == 2


def test_a_text_ends_when_there_is_no_other_way() -> None:
    row = np.full((1, 5), -np.inf, np.float32)
    row[0, 0] = 1.0
    beams = BeamSearch(3, ENDS, max_tokens=3)
    assert beams.step(row) == []
    assert beams.done
    assert [beam.tokens for beam in beams.best()] == [()]
