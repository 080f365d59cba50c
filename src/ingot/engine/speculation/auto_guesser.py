"""AutoGuesser: the guesses of one text, as long as they pay (auto.py).

It learns how often each sort of guess is right: from the guesses that were tried, and from others
that only were compared to what came, if they cost nothing.
"""

from dataclasses import dataclass

from ingot.arrays import Floats, Ints
from ingot.engine.speculation.auto import AutoSpeculation, Ledger
from ingot.engine.speculation.proposers import Proposer, Prospect

_COMPARED = 4  # tokens of a guess that is only compared
_FADE = 0.9  # of what was seen, with each guess
_PRIOR = 2.0  # guesses that a prospect's own chance counts for


@dataclass(slots=True)
class _Seen:
    """How many tokens of a sort of guess were right, and how many guesses ended with a wrong one.

    The newest guesses count most.
    """

    right: float = 0.0
    wrong: float = 0.0

    def add(self, proposed: int, accepted: int) -> None:
        self.right = _FADE * self.right + accepted
        self.wrong = _FADE * self.wrong + (accepted < proposed)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A guess that the text is compared to, without a try."""

    start: int  # position of its first token
    guess: list[int]
    sort: int


class AutoGuesser:
    """Guesses of one text, if they pay."""

    def __init__(self, proposer: Proposer, auto: AutoSpeculation) -> None:
        self.rests = False
        self._proposer = proposer
        self._auto = auto
        self._seen: dict[int, _Seen] = {}
        self._compared: _Compared | None = None
        self._sort = 0  # of the last guess
        self._extra = 0.0  # seconds that the last guess adds
        self._pause = 0  # tokens until the next look
        self._ledger: Ledger | None = None  # while it decodes

    def _chance(self, prospect: Prospect) -> float:
        """How likely a token of a guess is right, if all before it are."""
        seen = self._seen.get(prospect.sort, _Seen())
        return (seen.right + _PRIOR * prospect.chance) / (seen.right + seen.wrong + _PRIOR)

    def guess(self, tokens: Ints, most: int) -> list[int]:
        """As many tokens as pay."""
        if self._ledger is None:
            self._ledger = self._auto.join()
        if self._pause > 0:
            self._pause -= 1
            return []
        started = self._auto.clock()
        self._compare(tokens)
        prospect = self._proposer.prospect(tokens)
        worth = 0
        if prospect is not None:
            chance, free = self._chance(prospect), prospect.is_free
            worth = self._auto.tokens_worth(self._ledger, chance, free=free)
        self._auto.looked(self._auto.clock() - started)
        self.rests = worth == 0
        if prospect is not None and worth > 0 and most > 0:
            return self._make(tokens, min(worth, most), prospect)
        if prospect is not None and prospect.is_free and self._compared is None:
            made = self._proposer.propose(tokens, _COMPARED)
            self._compared = _Compared(len(tokens), made, prospect.sort)
        if self.rests:
            self._pause = self._auto.pause - 1
        return []

    def learn(self, proposed: int, accepted: int) -> None:
        """Count what was right, and the seconds that it saved."""
        assert self._ledger is not None, "it has guessed"
        self._observe(self._sort, proposed, accepted)
        saved = accepted * self._auto.step_seconds
        self._ledger.plain += saved
        self._ledger.lost -= saved
        if not accepted:
            self._ledger.wasted += self._extra

    def see(self, tokens: Ints, start: int, hidden: Floats) -> None:
        """The proposer may need the hidden states."""
        self._proposer.see(tokens, start, hidden)

    def close(self) -> None:
        """Leave the others; free what the proposer holds."""
        if self._ledger is not None:
            self._auto.leave(self._ledger)
        self._proposer.close()

    def _make(self, tokens: Ints, count: int, prospect: Prospect) -> list[int]:
        free, again = prospect.is_free, self._proposer.has_begun
        started = self._auto.clock()
        guess = self._proposer.propose(tokens, count)
        if not free:
            self._auto.drafted(len(guess), self._auto.clock() - started, again=again)
        self._auto.plan(len(guess), self._chance(prospect))
        self._extra = self._auto.extra_seconds(len(guess), free=free)
        self._sort, self._compared = prospect.sort, None
        return guess

    def _compare(self, tokens: Ints) -> None:
        """Look how much of a guess without a try was right, once all its tokens are there."""
        compared = self._compared
        if compared is None or len(tokens) < compared.start:  # the text was shifted
            self._compared = None
            return
        came = tokens[compared.start : compared.start + len(compared.guess)].tolist()
        pairs = zip(came, compared.guess, strict=False)
        right = next((n for n, (one, other) in enumerate(pairs) if one != other), len(came))
        if right == len(came) < len(compared.guess):
            return
        self._observe(compared.sort, min(right + 1, len(compared.guess)), right)
        self._compared = None

    def _observe(self, sort: int, proposed: int, accepted: int) -> None:
        self._seen.setdefault(sort, _Seen()).add(proposed, accepted)
