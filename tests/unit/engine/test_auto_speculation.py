"""Automatic guesses pay or are not made: simulated texts and step costs, without a clock.

A simulated engine runs texts whose next tokens are known. A step costs what a function of its
columns says. The seconds are compared to those of the same texts without guesses.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from ingot.arrays import Ints
from ingot.engine.sequence import TokenSequence
from ingot.engine.speculation.auto import AutoSpeculation
from ingot.engine.speculation.auto_guesser import AutoGuesser
from ingot.engine.speculation.guesser import PacedGuesser
from ingot.engine.speculation.proposers import (
    CopyingProposer,
    NgramProposer,
    NoProposer,
    Proposer,
    Prospect,
)
from ingot.engine.step_costs import StepCosts

Costs = Callable[[int], float]  # from columns to seconds
Writer = Callable[[int, list[int]], int]  # from a position and the guess of it to its token

FASTEST = 1 / 0.97  # the seconds of a text may be so many times those without guesses


def flat(columns: int) -> float:
    """Memory-bound: more columns cost next to nothing."""
    return 0.010 + 0.0003 * (columns - 1)


def steep(columns: int) -> float:
    """Compute-bound: a column more costs nearly a step more."""
    return 0.010 + 0.009 * (columns - 1)


def kinked(columns: int) -> float:
    """Cheap up to four columns, then expensive."""
    return 0.010 + 0.0005 * (columns - 1) + 0.008 * max(0, columns - 4)


class Model(Proposer):
    """A proposer whose guesses take time."""

    def __init__(self, says: Callable[[int], int], clock: "Clock", seconds: float) -> None:
        self.says, self.clock, self.seconds = says, clock, seconds

    def prospect(self, tokens: Ints) -> Prospect:  # noqa: ARG002 (see Proposer)
        return Prospect(0, 0.6)

    def propose(self, tokens: Ints, most: int) -> list[int]:
        self.clock.now += most * self.seconds
        return [self.says(len(tokens) + index) for index in range(most)]


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Text:
    guesser: AutoGuesser | PacedGuesser
    write: Writer
    prompt: list[int]
    guess: list[int] = field(default_factory=list)
    seconds: float = 0.0
    plain: float = 0.0
    tried: int = 0

    def __post_init__(self) -> None:
        self.sequence = TokenSequence(np.array(self.prompt, np.int32))

    def take(self, most: int) -> int:
        """Continue after a step; returns how many tokens were written."""
        right, guess = 0, self.guess
        while True:
            token = self.write(len(self.sequence), guess[right:])
            self.sequence.append(token)
            if right == len(guess) or token != guess[right]:
                break
            right += 1
        if guess:
            self.guesser.learn(len(guess), right)
        self.guess = self.guesser.guess(self.sequence.tokens, most)
        self.tried += len(self.guess)
        return right + 1


def run(auto: AutoSpeculation, clock: Clock, texts: list[Text], steps: int, costs: Costs) -> None:
    for text in texts:
        text.take(0)
    for _ in range(steps):
        columns = sum(1 + len(text.guess) for text in texts)
        started = clock.now
        clock.now += costs(columns)
        auto.begin(len(texts), columns)
        written = [text.take(12) for text in texts]
        took = clock.now - started
        auto.end(took)
        for text, count in zip(texts, written, strict=True):
            text.seconds += took
            text.plain += count * costs(len(texts))


def copying(seed: int) -> tuple[list[int], Writer]:
    """A prompt, and a writer that repeats it."""
    prompt: list[int] = np.random.default_rng(seed).integers(0, 1000, 200).tolist()
    return prompt, lambda position, _: prompt[position % len(prompt)]


def inventing(seed: int) -> tuple[list[int], Writer]:
    """Every fourth token is new: n-grams occur before, and what followed never follows again."""
    rng = np.random.default_rng(seed)

    def write(position: int, _: list[int]) -> int:
        return int(rng.integers(10, 1_000_000)) if position % 4 == 3 else position % 4

    return [write(position, []) for position in range(60)], write


def contradicting(seed: int) -> tuple[list[int], Writer]:
    """Repeats itself as long as nobody bets on it."""
    prompt, copy = copying(seed)
    return prompt, lambda position, guess: 1000 + guess[0] if guess else copy(position, guess)


def simulate(
    kinds: list[Callable[[int], tuple[list[int], Writer]]], costs: Costs, steps: int = 300
) -> list[Text]:
    clock = Clock()
    auto = AutoSpeculation(columns=64, clock=clock)
    texts = []
    for seed, kind in enumerate(kinds):
        prompt, writer = kind(seed)
        texts.append(Text(AutoGuesser(NgramProposer(), auto), writer, prompt))
    run(auto, clock, texts, steps, costs)
    return texts


@pytest.mark.parametrize("costs", [flat, steep, kinked])
@pytest.mark.parametrize("kind", [inventing, contradicting, copying])
@pytest.mark.parametrize("steps", [20, 60, 300])
def test_no_text_is_ever_slower_than_plain_decoding(
    kind: Callable[[int], tuple[list[int], Writer]], costs: Costs, steps: int
) -> None:
    (text,) = simulate([kind], costs, steps)
    assert text.seconds <= FASTEST * text.plain


@pytest.mark.parametrize("costs", [flat, steep, kinked])
def test_no_text_of_a_batch_is_slower(costs: Costs) -> None:
    texts = simulate([copying, inventing, contradicting, inventing], costs)
    for text in texts:
        assert text.seconds <= FASTEST * text.plain
    for text in simulate([copying] * 8, costs):
        assert text.seconds <= FASTEST * text.plain


def test_a_text_that_cannot_guess_is_not_slowed_down() -> None:
    clock = Clock()
    auto = AutoSpeculation(columns=64, clock=clock)
    prompt, writer = copying(0)
    silent = Text(AutoGuesser(NoProposer(), auto), writer, list(prompt))
    beside = [Text(AutoGuesser(NgramProposer(), auto), writer, list(prompt)) for _ in range(3)]
    run(auto, clock, [silent, *beside], 300, lambda columns: 0.010 * columns**0.5)
    assert silent.seconds <= FASTEST * silent.plain
    assert sum(text.tried for text in beside) > 0


def test_texts_that_copy_gain() -> None:
    (text,) = simulate([copying], flat)
    assert text.plain > 3 * text.seconds
    (text,) = simulate([copying], flat, 60)
    assert text.plain > 1.5 * text.seconds
    assert all(text.plain > 1.5 * text.seconds for text in simulate([copying] * 4, flat))


def test_guesses_are_no_longer_than_pays() -> None:
    (text,) = simulate([copying], kinked)
    assert text.plain > 2 * text.seconds
    (text,) = simulate([copying], steep)
    assert text.plain >= 0.99 * text.seconds


def test_guesses_that_cost_nothing_are_compared_without_a_try() -> None:
    (text,) = simulate([inventing], flat)
    assert text.tried == 0


def test_guesses_begin_again_where_a_text_begins_to_copy() -> None:
    prompt, copy = copying(1)
    rng = np.random.default_rng(1)

    def write(position: int, guess: list[int]) -> int:
        return int(rng.integers(0, 9999)) if position < 350 else copy(position, guess)

    (text,) = simulate([lambda _: (prompt, write)], flat)
    assert text.plain > 1.5 * text.seconds


@pytest.mark.parametrize(
    ("hits", "seconds", "gain"),
    [(0.95, 0.0005, 2.0), (0.95, 0.009, 0.97), (0.0, 0.0005, 0.97), (0.0, 0.02, 0.97)],
)
def test_models_that_guess_are_used_if_they_pay(hits: float, seconds: float, gain: float) -> None:
    rng = np.random.default_rng(2)
    truth = [int(token) for token in rng.integers(0, 1000, 9_000)]
    lies = rng.random(9_000) >= hits
    clock = Clock()
    auto = AutoSpeculation(columns=64, clock=clock)

    def says(position: int) -> int:
        return truth[position] + int(lies[position])

    text = Text(
        AutoGuesser(Model(says, clock, seconds), auto), lambda position, _: truth[position], [1] * 5
    )
    run(auto, clock, [text], 400, flat)
    assert text.tried > 0
    assert text.plain >= gain * text.seconds


def test_a_model_that_had_no_luck_is_tried_again() -> None:
    truth = [int(token) for token in np.random.default_rng(3).integers(0, 1000, 9_000)]
    clock = Clock()
    auto = AutoSpeculation(columns=64, clock=clock)

    def says(position: int) -> int:
        return truth[position] + (position < 500)

    text = Text(
        AutoGuesser(Model(says, clock, 0.0005), auto), lambda position, _: truth[position], [1] * 5
    )
    run(auto, clock, [text], 450, flat)
    before = text.plain / text.seconds
    assert 0.97 <= before <= 1
    run(auto, clock, [text], 500, flat)
    assert text.plain > 2 * text.seconds


@pytest.mark.parametrize("knows", [False, True])
def test_texts_that_copy_gain_beside_a_model_that_guesses(*, knows: bool) -> None:
    """The model is never right, or right outside of what is copied."""
    rng = np.random.default_rng(5)
    new = rng.integers(1000, 9000, 9_000).tolist()
    prompt, copy = copying(5)
    clock = Clock()
    auto = AutoSpeculation(columns=64, clock=clock)

    def write(position: int, guess: list[int]) -> int:
        return copy(position, guess) if position % 400 < 200 else new[position]

    model = Model(lambda position: new[position] if knows else 0, clock, 0.0005)
    text = Text(AutoGuesser(CopyingProposer(model), auto), write, prompt)
    run(auto, clock, [text], 300, flat)
    assert text.plain > (2.5 if knows else 1.5) * text.seconds


def test_looks_are_rare_if_they_take_long() -> None:
    """As with many long texts beside each other, whose steps are short."""
    clock = Clock()
    auto = AutoSpeculation(columns=64, clock=clock)

    class Slow(NgramProposer):
        looks = 0

        def prospect(self, tokens: Ints) -> Prospect | None:
            self.looks += 1
            clock.now += 0.001
            return super().prospect(tokens)

    proposer = Slow()
    prompt, writer = inventing(4)
    text = Text(AutoGuesser(proposer, auto), writer, prompt)
    run(auto, clock, [text], 2000, flat)
    assert 20 < proposer.looks < 2000 * 0.08
    assert text.seconds <= FASTEST * text.plain


def test_a_step_that_runs_ahead_is_the_plain_one() -> None:
    """Leaving it costs something too: a guess must pay for that as well."""
    auto = AutoSpeculation(columns=64, runs_ahead=True, clock=Clock())
    ledger = auto.join()
    for _ in range(200):
        auto.begin(1, 1, ahead=True)
        auto.end(0.010)
    assert auto.tokens_worth(ledger, 0.9, free=True) == 1, "what a column costs is not known"
    for columns in (2, 3, 5):
        auto.begin(1, columns)
        auto.end(0.030)
    assert auto.tokens_worth(ledger, 0.5, free=True) == 0
    for _ in range(1000):
        auto.begin(1, 1, ahead=True)
        auto.end(0.010)
    assert auto.tokens_worth(ledger, 0.99, free=True) > 3


def test_a_step_of_prompts_alone_costs_no_text_anything() -> None:
    auto = AutoSpeculation(columns=64, clock=Clock())
    ledger = auto.join()
    auto.begin(1, 1)
    auto.end(0.010)
    assert ledger.plain == 0.010
    for seconds in (None, 5.0):
        auto.begin(0, 0)
        auto.end(seconds)
    assert (ledger.plain, ledger.lost) == (0.010, 0.0)


def test_costs_between_and_beyond_what_ran() -> None:
    costs = StepCosts()
    assert costs.seconds(1) is None
    costs.add(2, 1.0)
    assert [costs.seconds(n) for n in (1, 2, 4)] == [1.0, 1.0, 2.0]
    costs.add(4, 1.5)
    assert [costs.seconds(n) for n in (3, 6)] == [1.25, 2.0]
    costs.add(8, 1.4)  # noise: more columns never cost less
    assert costs.seconds(9) == costs.seconds(5) == 1.5
    for seconds in (9.0, 1.6, 1.6):
        costs.add(4, seconds)
    assert costs.seconds(4) == 1.6
    assert costs.most_columns == 8
