"""Sampler: the base class of the stages of a sampler chain.

`apply` changes the candidates; `accept` takes the token that was sampled; `reset` and `clone`
handle state. Most samplers have no state and define only `apply`. Random numbers come from the
candidates, so `apply` gives the same result each time.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from ingot.arrays import Ints
from ingot.backends.device_sampler import LogitEdits
from ingot.sampling.candidates import Candidates


class Sampler(ABC):
    """One stage of a sampler chain."""

    cuts: ClassVar[bool] = True  # False: it only changes logits

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change logits, remove candidates, or pick the token."""

    def edits(self, token_ids: Ints, generated: int, ahead: int) -> LogitEdits | None:
        """What `apply` does to a row as edits of a few tokens; None if they do not suffice.

        `generated` tokens were sampled so far, and `ahead` more will be before the row.
        """
        del token_ids, generated, ahead
        return None

    def accept(self, token: int) -> None:
        """Take note of the token that was sampled."""
        del token

    def reset(self) -> None:
        """Go back to the state at the start of a text."""
        return

    def prepare(self) -> None:
        """Prepare the next `apply`, in any thread, while the model computes."""
        return

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next, if any."""
        return []

    @property
    def is_complete(self) -> bool:
        """Whether no further token is allowed."""
        return False

    def clone(self) -> Self:
        """Copy the state; a sampler without state returns itself."""
        return self
