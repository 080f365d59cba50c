"""The samplers that change logits: temperature, penalties, DRY, biases, processors."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot.errors import LogitsError, ProcessorError
from ingot.sampling import Candidates, Sampler
from ingot.sampling.samplers.logit_bias import LogitBias
from ingot.sampling.samplers.penalties import Dry, Penalties, SequenceBreakers
from ingot.sampling.samplers.processors import Processors
from ingot.sampling.samplers.temperature import DynamicTemperature, Temperature

sampled = settings(max_examples=80, deadline=None, derandomize=True)
VOCABULARY = 12


def random_row(seed: int, size: int = VOCABULARY) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    row = random.normal(scale=3, size=size).astype(np.float32)
    row[random.random(size) < 0.2] = -np.inf
    row[0] = 0.0
    return row


def run(
    sampler: Sampler, row: NDArray[np.float32], listed: bool = False, tokens: list[int] = ()
) -> NDArray[np.float32]:
    """The logits after a sampler, in the order of the ids."""
    candidates = Candidates(row.copy(), np.array(tokens, np.int32))
    if listed:
        order = np.random.default_rng(1).permutation(len(row)).astype(np.int32)
        candidates.take(order, row[order])
    sampler.apply(candidates)
    after = np.full_like(row, -np.inf)
    after[candidates.candidate_ids()] = candidates.logits
    return after


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return powers / powers.sum()


def assert_same_distribution(found: NDArray[np.float32], expected: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(softmax(found), expected, rtol=2e-6, atol=1e-12)


@sampled
@given(
    seed=st.integers(0, 999), temperature=st.sampled_from([0.05, 0.8, 1.7]), listed=st.booleans()
)
def test_temperature(seed: int, temperature: float, listed: bool) -> None:
    row = random_row(seed)
    powered = softmax(row) ** (1 / temperature)
    assert_same_distribution(run(Temperature(temperature), row, listed), powered / powered.sum())


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1e-30])
def test_a_temperature_next_to_nothing_leaves_the_likeliest(temperature: float) -> None:
    row = np.array([1.0, 3.0, 2.9, -50.0], np.float32)
    for listed in (False, True):
        assert softmax(run(Temperature(temperature), row, listed)).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [float(np.finfo(np.float32).tiny), 2e-38])
def test_the_smallest_temperatures_leave_all_of_the_likeliest(temperature: float) -> None:
    row = np.array([100.0, 90.0, 100.0], np.float32)  # divided by these, it is infinite
    assert softmax(run(Temperature(temperature), row)).tolist() == [0.5, 0.0, 0.5]


def test_temperature_leaves_what_cannot_be_chosen_to_the_draw() -> None:
    banned = np.full(5, -np.inf, np.float32)
    assert run(Temperature(0.5), banned).tolist() == banned.tolist()
    broken = np.array([1.0, np.nan], np.float32)
    assert np.isnan(run(Temperature(0.5), broken)).any()


@sampled
@given(
    seed=st.integers(0, 999),
    spread=st.sampled_from([0.3, 0.8, 2.0]),
    exponent=st.sampled_from([0.0, 0.5, 1.0, 2.5]),
    listed=st.booleans(),
)
def test_dynamic_temperature(seed: int, spread: float, exponent: float, listed: bool) -> None:
    row = random_row(seed)
    p = softmax(row)
    some = p[p > 0]
    share = -(some * np.log(some)).sum() / np.log(len(row))
    low, high = max(0.0, 0.8 - spread), 0.8 + spread
    powered = p ** (1 / (low + (high - low) * share**exponent))
    found = run(DynamicTemperature(0.8, spread, exponent), row, listed)
    assert_same_distribution(found, powered / powered.sum())


def test_dynamic_temperature_of_two_candidates() -> None:
    row = np.array([0.0, np.log(3.0)], np.float32)
    share = (0.25 * np.log(4) + 0.75 * np.log(4 / 3)) / np.log(2)
    found = run(DynamicTemperature(1.0, 0.5, 1.0), row)
    assert found[1] - found[0] == pytest.approx(np.log(3) / (0.5 + share), rel=1e-6)


def test_dynamic_temperature_of_a_single_candidate() -> None:
    row = np.array([2.0], np.float32)
    assert run(DynamicTemperature(0.8, 0.5, 1.0), row).tolist() == [2.0]


@sampled
@given(
    seed=st.integers(0, 999),
    tokens=st.lists(st.integers(0, VOCABULARY - 1), max_size=30),
    window=st.sampled_from([-1, 1, 5, 64]),
    repeat=st.sampled_from([0.7, 1.0, 1.3]),
    presence=st.sampled_from([0.0, 0.5, -0.25]),
    frequency=st.sampled_from([0.0, 0.3]),
    listed=st.booleans(),
)
def test_penalties(
    seed: int,
    tokens: list[int],
    window: int,
    repeat: float,
    presence: float,
    frequency: float,
    listed: bool,
) -> None:
    row = random_row(seed)
    counts = Counter(tokens if window < 0 else tokens[-window:])
    expected = row.astype(np.float64)
    for token, count in counts.items():
        logit = expected[token]
        logit = logit * repeat if logit <= 0 else logit / repeat
        expected[token] = logit - count * frequency - presence
    found = run(Penalties(window, repeat, presence, frequency), row, listed, tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_penalties_of_tokens_that_were_cut_do_nothing() -> None:
    candidates = Candidates(np.arange(5, dtype=np.float32), np.array([1, 4], np.int32))
    candidates.take(np.array([4, 2], np.int32), np.array([4.0, 2.0], np.float32))
    Penalties(-1, 2.0, 0.0, 0.0).apply(candidates)
    assert candidates.candidate_ids().tolist() == [4, 2]
    assert candidates.logits.tolist() == [2.0, 2.0]


def test_penalties_of_no_tokens_do_nothing() -> None:
    row = random_row(1)
    assert run(Penalties(0, 2.0, 1.0, 1.0), row, False, [0, 1, 2]).tolist() == row.tolist()


def test_penalties_are_known_ahead_only_if_the_text_is() -> None:
    text = np.array([2, 7, 2], np.int32)
    edits = Penalties(-1, 1.5, 0.5, 0.25).edits(text, generated=1, ahead=0)
    assert edits is not None
    assert (edits.ids.tolist(), edits.lowered.tolist(), edits.repeat) == ([2, 7], [1.0, 0.75], 1.5)
    assert Penalties(-1, 1.5, 0.5, 0.25).edits(text, generated=1, ahead=1) is None


# DRY: a small alphabet, one letter a token, so that a text is its tokens.

LETTERS = "abcd:\nxyz"


def letter_bytes(token: int) -> bytes:
    return LETTERS[token].encode()


def dry_definition(
    text: str, breakers: list[str], multiplier: float, base: float, allowed: int
) -> dict[str, float]:
    """For each letter the penalty: how long is the repetition that it would continue?"""
    since = len(text)
    for place in range(len(text) - 1, -1, -1):
        if any(text[: place + 1].endswith(b) for b in breakers):
            since = len(text) - 1 - place
            break
    longest: dict[str, int] = {}
    for place in range(len(text) - 1):
        length = 0
        while length <= place and text[place - length] == text[len(text) - 1 - length]:
            length += 1
        length = min(length, since)
        following = text[place + 1]
        if length >= allowed and not any(b in following for b in breakers):
            longest[following] = max(longest.get(following, 0), length)
    return {c: multiplier * base ** (length - allowed) for c, length in longest.items()}


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    text=st.text("aab:", max_size=40),
    breakers=st.sampled_from([[], [":"], ["b", ":"], ["ab"], ["a:b", "ba"]]),
    allowed=st.integers(1, 3),
    listed=st.booleans(),
)
def test_dry(text: str, breakers: list[str], allowed: int, listed: bool) -> None:
    row = np.zeros(len(LETTERS), np.float32)
    sampler = Dry(0.8, 1.75, allowed, -1, SequenceBreakers(breakers, letter_bytes))
    found = run(sampler, row, listed, [LETTERS.index(c) for c in text])
    expected = dry_definition(text, breakers, 0.8, 1.75, allowed)
    for index, letter in enumerate(LETTERS):
        assert found[index] == pytest.approx(-expected.get(letter, 0.0), rel=1e-6), letter


def test_dry_goes_on_from_where_it_was() -> None:
    text = "abcabcab:abcabx" * 3
    together = Dry(0.8, 1.75, 2, -1, SequenceBreakers([":", "ca"], letter_bytes))
    for length in range(1, len(text)):
        tokens = [LETTERS.index(c) for c in text[:length]]
        alone = Dry(0.8, 1.75, 2, -1, SequenceBreakers([":", "ca"], letter_bytes))
        row = np.zeros(len(LETTERS), np.float32)
        expected = run(alone, row, False, tokens).tolist()
        assert run(together, row, False, tokens).tolist() == expected
        assert run(together.clone(), row, False, tokens).tolist() == expected
    together.reset()
    assert run(together, row, False, tokens).tolist() == expected


def test_dry_looks_at_its_window_only() -> None:
    tokens = [LETTERS.index(c) for c in "abcd" + "xyz" + "abc"]
    row = np.zeros(len(LETTERS), np.float32)
    d = LETTERS.index("d")
    found = [
        run(Dry(1.0, 2.0, 2, window, SequenceBreakers([], letter_bytes)), row, False, tokens)[d]
        for window in (-1, 10, 9, 8, 0)
    ]
    assert found == [-2.0, -2.0, -1.0, 0.0, 0.0]


def test_dry_penalties_stay_finite() -> None:
    tokens = [0] * 5000
    row = np.zeros(len(LETTERS), np.float32)
    for base in (1.0, 1.75, 1e6):
        found = run(Dry(1.0, base, 2, -1, SequenceBreakers([], letter_bytes)), row, False, tokens)
        assert np.isfinite(found).all()
        assert found[0] < 0


@pytest.mark.parametrize("listed", [False, True])
def test_biases_and_bans(listed: bool) -> None:
    row = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    found = run(LogitBias({1: 0.5, 3: -math.inf, 0: -2.0}), row, listed)
    assert found.tolist() == [-1.0, 2.5, 3.0, -math.inf]


def test_ends_are_banned_as_long_as_the_text_is_too_short() -> None:
    sampler = LogitBias({}, ends=[1, 2], min_tokens=3)
    for generated, banned in ((0, True), (2, True), (3, False)):
        candidates = Candidates(np.zeros(4, np.float32), np.zeros(0, np.int32), generated=generated)
        sampler.apply(candidates)
        assert (candidates.logits == -np.inf).tolist() == [False, banned, banned, False]


def test_a_breaker_does_not_reach_around_the_beginning_of_a_text() -> None:
    breakers = SequenceBreakers(["ba"], letter_bytes)
    text = np.array([0, 2, 1], np.int32)  # acb: only its end and its beginning are a breaker
    assert breakers.tokens_since(text, 10) == 3
    assert SequenceBreakers(["ac"], letter_bytes).tokens_since(text, 10) == 1


@pytest.mark.parametrize("lengths", [[0], [1, 2, 3, 4, 9], [2, 3, 6, 7, 9], [5, 7], [9, 8, 3]])
def test_breakers_are_found_however_a_text_grows(lengths: list[int]) -> None:
    text = "ab:cd:xyz"
    tokens = np.array([LETTERS.index(letter) for letter in text], np.int32)
    breakers = SequenceBreakers([":"], letter_bytes)
    for length in lengths:
        expected = length - 1 - text.rfind(":", 0, length)
        assert breakers.tokens_since(tokens[:length], 20) == expected
        assert breakers.tokens_since(tokens[:length], 1) == min(expected, 1)


def test_dry_forgets_the_text_before() -> None:
    d, row = LETTERS.index("d"), np.zeros(len(LETTERS), np.float32)
    sampler = Dry(1.0, 2.0, 1, -1, SequenceBreakers(["ca"], letter_bytes))
    run(sampler, row, False, [LETTERS.index(letter) for letter in "xyzxyzxyz"])
    sampler.reset()
    text = [LETTERS.index(letter) for letter in "bcabdbcab"]  # one token after the breaker repeats
    assert run(sampler, row, False, text)[d] == -1.0


def test_biases_are_known_ahead() -> None:
    edits = LogitBias({1: 0.5}).edits(np.zeros(0, np.int32), generated=0, ahead=0)
    assert edits is not None
    assert (edits.ids.tolist(), edits.lowered.tolist(), edits.repeat) == ([1], [-0.5], 1.0)


def test_ends_are_allowed_ahead_of_time_as_soon_as_the_text_is_long_enough() -> None:
    sampler = LogitBias({}, ends=[1], min_tokens=3)
    none = np.zeros(0, np.int32)
    assert sampler.edits(none, generated=1, ahead=1) is None
    assert sampler.edits(none, generated=2, ahead=1) is not None
    assert sampler.edits(none, generated=3, ahead=0) is not None


def test_processors_change_the_row_itself() -> None:
    row = np.zeros(6, np.float32)
    seen: list[tuple[list[int], int]] = []

    def force(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        seen.append((token_ids.tolist(), logits.ctypes.data))
        assert not token_ids.flags.writeable
        logits[4] = 9.0

    candidates = Candidates(row, np.array([3, 1], np.int32))
    Processors([force, force]).apply(candidates)
    assert seen == [([3, 1], row.ctypes.data)] * 2
    assert candidates.logits is row
    assert row[4] == 9.0


def test_processors_behind_a_cut_see_it_and_cannot_undo_it() -> None:
    def lift(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        del token_ids
        assert (logits > -np.inf).tolist() == [False, True, False, True]
        logits += 1.0
        logits[0] = 99.0
        logits[3] = -np.inf

    candidates = Candidates(np.zeros(4, np.float32), np.zeros(0, np.int32))
    candidates.take(np.array([3, 1], np.int32), np.array([5.0, 4.0], np.float32))
    Processors([lift]).apply(candidates)
    assert candidates.candidate_ids().tolist() == [3, 1]
    assert candidates.logits.tolist() == [-np.inf, 5.0]
    candidates.keep_top(5)
    assert candidates.candidate_ids().tolist() == [1]


def test_what_a_processor_raises_is_named() -> None:
    def broken(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        raise KeyError(f"{len(token_ids)} of {len(logits)}")

    candidates = Candidates(np.zeros(4, np.float32), np.zeros(0, np.int32))
    with pytest.raises(ProcessorError, match=r"broken failed: KeyError\('0 of 4'\)") as failure:
        Processors([broken]).apply(candidates)
    assert isinstance(failure.value.__cause__, KeyError)


def test_a_processor_may_ban_everything() -> None:
    def nothing(token_ids: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        del token_ids
        logits.fill(-np.inf)

    candidates = Candidates(np.zeros(4, np.float32), np.zeros(0, np.int32))
    Processors([nothing]).apply(candidates)
    with pytest.raises(LogitsError, match="banned"):
        candidates.keep_top(2)
