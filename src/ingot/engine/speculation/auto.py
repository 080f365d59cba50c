"""Speculation that pays: guesses as long as the measured costs and hits promise a gain.

Every decode step is measured by its columns (`StepCosts`), and every sort of guess by how often
its tokens were right. From both follows how many tokens of a guess give the most tokens per second,
perhaps none.

Each text keeps a ledger of the seconds that guesses, its own and those of the texts beside it, cost
and saved. A guess must be affordable for every text of the step even if all of it is wrong: no text
ever loses more than `_LIMIT` of the seconds that it would have taken without guesses. What is not
known is tried within that limit: the cost of a column more, and guesses of proposers that had no
luck. Guesses that cost nothing are also compared to the text without a try.

Only the step thread calls this. `clock` gives seconds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ingot.engine.speculation.proposers import LONGEST
from ingot.engine.step_costs import StepCosts

_LIMIT = 0.025  # of a text's seconds: the most that guesses may cost it
_TRIALS = 0.01  # of them: for guesses of which little good is expected
_LOOKING = 0.005  # of a step: for looking for guesses
_GAIN = 1.02  # a guess must promise so many times the tokens per second
_HOPEFUL = 0.5  # a chance with which it is worth measuring what a column costs
_TICK = 1e-9  # seconds: the least that a step takes


@dataclass(slots=True)
class Ledger:
    """What guesses did to one text, in seconds."""

    plain: float = 0.0  # its decode would have taken without guesses
    lost: float = 0.0  # guesses cost it, less those that they saved
    wasted: float = 0.0  # its own guesses cost of which nothing was right


class AutoSpeculation:
    """What the texts of an engine share: costs, and the guesses of the next step."""

    def __init__(
        self,
        *,
        columns: int,
        runs_ahead: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """A step takes at most `columns`.

        `runs_ahead`: a step without guesses may start before the tokens of the last one are seen.
        """
        self.clock = clock
        self._columns = columns
        self._guessing = StepCosts()
        self._plain = StepCosts() if runs_ahead else self._guessing
        self._drafting = StepCosts()  # by tokens of a guess
        self._texts: list[Ledger] = []  # in decode
        self._ran: list[Ledger] = []  # of them, in the running step
        self._size = 0  # texts of the running step, guessing or not
        self._step_columns = 0
        self._step_costs = self._guessing
        self._charged = (0.0, 0.0)  # plain and lost seconds of the running step, in the ledgers
        self._afforded: float | None = None  # seconds that no text of the next step would miss
        self._planned = 0  # columns of guesses in the next step
        self._hoped = 0.0  # tokens of them that will be right
        self._drafted = 0.0  # seconds that proposers took since the step began
        self._look = 0.0  # seconds of a look for a guess

    def begin(self, size: int, columns: int, *, ahead: bool = False) -> None:
        """A step of so many texts ran on the model; their tokens come next."""
        self._size, self._step_columns = size, columns
        self._step_costs = self._plain if ahead else self._guessing
        self._ran = list(self._texts)
        self._planned, self._hoped, self._drafted = 0, 0.0, 0.0
        self._charged = (0.0, 0.0)
        self._charge()

    def end(self, seconds: float | None) -> None:
        """The step took so long, all in all; None: it did something else too."""
        if seconds is not None and self._size:
            self._step_costs.add(self._step_columns, max(seconds - self._drafted, 0.0))
            self._charge()

    def _charge(self) -> None:
        """Put the running step into the ledgers, as far as its costs are known by now."""
        self._afforded = None
        plain, actual = self.plain(self._size), self._step_costs.seconds(self._step_columns)
        if not self._size or plain is None or actual is None:
            return
        more_plain, more_lost = plain - self._charged[0], actual - plain - self._charged[1]
        self._charged = (plain, actual - plain)
        for text in self._ran:
            text.plain += more_plain
            text.lost += more_lost

    def plain(self, texts: int) -> float | None:
        """Seconds of a step without guesses."""
        seconds = self._plain.seconds(texts)
        return self._guessing.seconds(texts) if seconds is None else seconds

    @property
    def step_seconds(self) -> float:
        """Seconds that the running step would take without guesses."""
        return self.plain(self._size) or 0.0

    def join(self) -> Ledger:
        """A text decodes from now on."""
        self._texts.append(Ledger())
        return self._texts[-1]

    def leave(self, text: Ledger) -> None:
        """A text has ended."""
        self._texts = [each for each in self._texts if each is not text]

    def plan(self, tokens: int, chance: float) -> None:
        """A guess of so many tokens joins the next step."""
        self._planned += tokens
        self._hoped += _hits(chance, tokens)

    def drafted(self, tokens: int, seconds: float, *, again: bool) -> None:
        """Making a guess took so long; not `again`: the proposer has also read the prompt."""
        self._drafted += seconds
        if again and tokens:
            self._drafting.add(tokens, seconds)
            self._afforded = None
            for text in self._texts:
                text.lost += seconds

    def looked(self, seconds: float) -> None:
        """A look for a guess took so long."""
        self._look += 0.1 * (seconds - self._look)
        self._drafted += seconds

    @property
    def pause(self) -> int:
        """Tokens between two looks of a text, so that looks cost next to nothing."""
        allowed = _LOOKING * self.step_seconds
        return 1 + int(self._look * len(self._texts) / allowed) if allowed else 1

    def tokens_worth(self, text: Ledger, chance: float, *, free: bool) -> int:
        """How many tokens a text should guess now, each right with this chance.

        `free`: making the guess takes no time.
        """
        size = max(self._size, len(self._texts))
        plain = self.plain(size)
        if plain is None or not (self._plain.knows(size) or self._guessing.knows(size)):
            return 0
        if self._afforded is None:
            self._afforded = min(_LIMIT * each.plain - each.lost for each in self._texts)
        before = size + self._planned
        known = self._guessing.most_columns - before  # of guesses, whose cost is known
        most = min(LONGEST, self._columns - before, max(1, 2 * known))
        base = plain if before == size else self._seconds(before, 0, plain, free=free)
        best, rate = 0, _GAIN * (size + self._hoped) / max(base, _TICK)
        afforded, written, hit = 0, size + self._hoped, 1.0
        for count in range(1, most + 1):
            seconds = max(self._seconds(before, count, plain, free=free), _TICK)
            hit *= chance
            written += hit
            if seconds - plain > self._afforded:
                break
            afforded = count
            if written / seconds > rate:
                best, rate = count, written / seconds
            if (written + hit * chance / (1 - chance + _TICK)) / seconds <= rate and count > 1:
                break  # longer guesses, which cost more, cannot be better
        if best or not afforded:
            return best
        unknown = known < 1 and chance >= _HOPEFUL
        trial = not free and text.wasted <= _TRIALS * text.plain
        return int(unknown or trial)

    def extra_seconds(self, tokens: int, *, free: bool) -> float:
        """What a guess of so many tokens adds to the next step."""
        size = max(self._size, len(self._texts))
        plain = self.plain(size) or 0.0
        return self._seconds(size, tokens, plain, free=free) - plain

    def _seconds(self, before: int, count: int, plain: float, *, free: bool) -> float:
        """Seconds of the next step with some columns more, and of making the guess."""
        step = self._guessing.seconds(before + count)
        if step is None:
            step = plain * (before + count) / before
        if free or not count:
            return step
        drafting = self._drafting.seconds(count)
        return step + (plain * count if drafting is None else drafting)


def _hits(chance: float, tokens: int) -> float:
    """How many tokens of a guess will be right."""
    return sum(chance**count for count in range(1, tokens + 1))
