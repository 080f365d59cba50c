"""Penalties for tokens that repeat the text so far: repetition, presence, frequency, and DRY."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ingot import _native
from ingot.arrays import Ints, Logits
from ingot.backends.device_sampler import LogitEdits
from ingot.sampling import arithmetic
from ingot.sampling.candidates import Candidates
from ingot.sampling.sampler import Sampler

_LARGEST_LOG = 88.7  # of a 32-bit float: keeps DRY's penalty finite


@dataclass(frozen=True, slots=True)
class Penalties(Sampler):
    """Repetition (Keskar et al., 2019), presence and frequency penalties.

    The last `window` tokens count (-1: all), prompt included. The logit of a token among them is
    divided by `repeat` (multiplied if it is negative), then lowered by `presence` once and by
    `frequency` for each occurrence.
    """

    cuts: ClassVar[bool] = False

    window: int
    repeat: float
    presence: float
    frequency: float

    def apply(self, candidates: Candidates) -> None:
        edits = self._edits(candidates.token_ids)
        where, which = candidates.find(edits.ids)
        logits, repeat = candidates.logits[where], np.float32(edits.repeat)
        scaled = np.where(logits <= 0, logits * repeat, logits / repeat)
        candidates.logits[where] = scaled - edits.lowered[which]

    def edits(self, token_ids: Ints, generated: int, ahead: int) -> LogitEdits | None:
        del generated
        return None if ahead else self._edits(token_ids)  # tokens to come are not known yet

    def _edits(self, tokens: Ints) -> LogitEdits:
        recent = tokens if self.window < 0 else tokens[max(0, len(tokens) - self.window) :]
        ids, counts = np.unique(recent, return_counts=True)
        lowered = counts * np.float32(self.frequency) + np.float32(self.presence)
        # A smaller number would be 0 in 32 bits.
        return LogitEdits(ids, lowered.astype(np.float32), max(self.repeat, 1e-9))


class SequenceBreakers:
    """Texts that end a repetition for DRY, wherever the boundaries of tokens lie.

    It searches from the end and remembers the result, so that one more token is cheap.
    """

    def __init__(self, texts: Sequence[str], token_bytes: Callable[[int], bytes]) -> None:
        self._texts = [text.encode() for text in texts]
        self._reach = max(map(len, self._texts), default=0)
        self._token_bytes = token_bytes
        self._known: dict[int, bytes] = {}
        self.reset()

    def reset(self) -> None:
        """Forget the tokens."""
        self._length, self._since = 0, 0

    def clone(self) -> "SequenceBreakers":
        """Copy the texts and what is remembered of the tokens."""
        copy = SequenceBreakers([], self._token_bytes)
        copy._texts, copy._reach, copy._known = self._texts, self._reach, self._known
        copy._length, copy._since = self._length, self._since
        return copy

    def tokens_since(self, token_ids: Ints, most: int) -> int:
        """How many tokens came after the last token in which a breaker ended, up to `most`."""
        length = len(token_ids)
        if length == self._length + 1:
            self._since = 0 if self._ends_at(token_ids, length - 1) else self._since + 1
        elif length != self._length:
            first = max(0, length - most)
            places = range(length - 1, first - 1, -1)
            found = next((i for i in places if self._ends_at(token_ids, i)), first - 1)
            self._since = length - 1 - found
        self._length = length
        return min(self._since, most)

    def within(self, token: int) -> bool:
        """Whether the text of a token contains a breaker."""
        own = self._text(token)
        return any(text in own for text in self._texts)

    def _ends_at(self, token_ids: Ints, place: int) -> bool:
        """Whether a breaker ends in the token at a place."""
        before = b""
        earlier = place
        while len(before) < self._reach and earlier > 0:
            earlier -= 1
            before = self._text(int(token_ids[earlier])) + before
        joined = before + self._text(int(token_ids[place]))
        return any(
            joined.find(text, max(0, len(before) - len(text) + 1)) >= 0 for text in self._texts
        )

    def _text(self, token: int) -> bytes:
        text = self._known.get(token)
        if text is None:
            text = self._known[token] = self._token_bytes(token)
        return text


class Dry(Sampler):
    """DRY, "don't repeat yourself" (p-e-w, 2024): lowers tokens that would continue a repetition.

    If the end of the text occurred earlier in it, the token that followed there would continue
    the repetition. Its logit is lowered by `multiplier * base ** (length - allowed_length)`, where
    length is that of the longest repetition it would continue. Only the last `window` tokens count
    (-1: all). Repetitions do not extend across sequence breakers, and tokens that contain a
    breaker are not lowered.
    """

    cuts = False

    def __init__(
        self,
        multiplier: float,
        base: float,
        allowed_length: int,
        window: int,
        breakers: SequenceBreakers,
    ) -> None:
        self._multiplier, self._base = multiplier, base
        self._allowed, self._window = allowed_length, window
        self._breakers = breakers
        growth = arithmetic.log(base)
        self._largest_power = int(_LARGEST_LOG / growth) if growth > 1e-6 else 0

    def reset(self) -> None:
        self._breakers.reset()

    def clone(self) -> "Dry":
        breakers = self._breakers.clone()
        return Dry(self._multiplier, self._base, self._allowed, self._window, breakers)

    def apply(self, candidates: Candidates) -> None:
        tokens = candidates.token_ids
        size = len(tokens) if self._window < 0 else min(self._window, len(tokens))
        limit = self._breakers.tokens_since(tokens, size)
        if limit < self._allowed:
            return
        recent = np.ascontiguousarray(tokens[len(tokens) - size :])
        lengths = np.zeros(size, np.int32)
        _native.repeat_lengths(recent, lengths)
        lengths = np.minimum(lengths[:-1], limit)
        ends = np.flatnonzero(lengths >= self._allowed)
        ids, which_id = np.unique(recent[ends + 1], return_inverse=True)
        longest = np.zeros(len(ids), np.int32)
        np.maximum.at(longest, which_id, lengths[ends])
        lowered = np.array([not self._breakers.within(token) for token in ids.tolist()], np.bool_)
        where, which = candidates.find(ids[lowered])
        candidates.logits[where] -= self._penalties(longest[lowered])[which]

    def _penalties(self, lengths: Ints) -> Logits:
        powers = np.minimum(lengths - self._allowed, self._largest_power)
        # By multiplication, because `pow` may differ between machines.
        table = np.cumprod(np.r_[1.0, np.full(powers.max(initial=0), self._base)])
        return (self._multiplier * table[powers]).astype(np.float32)
