"""What a step of a chain is.

A sampler changes the candidates in `apply`, hears in `accept` which token was taken, forgets
in `reset` and copies its state in `clone`. Most keep no state and write only `apply`. The
randomness they need comes from the candidates, so `apply` twice gives the same twice.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from ingot.backends.device_sampler import LogitEdits
from ingot.sampling.arithmetic import Ids
from ingot.sampling.candidates import Candidates


class Sampler(ABC):
    """One step of a chain."""

    cuts: ClassVar[bool] = True  # False: changes logits only, and never chooses

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change logits, leave out candidates, or choose one."""

    def edits(self, token_ids: Ids, generated: int, ahead: int) -> LogitEdits | None:
        """What `apply` does to a row, if a few tokens' edits say it all; else None.

        `generated` tokens of the text were written, and `ahead` more will be by then.
        """
        del token_ids, generated, ahead
        return None

    def accept(self, token: int) -> None:
        """Hear which token was taken."""
        del token

    def reset(self) -> None:
        """Go back to the state at the start of a text."""
        return

    def prepare(self) -> None:
        """Compute ahead what the next `apply` needs; in any thread, while the model computes."""
        return

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next, if there is no choice."""
        return []

    @property
    def is_complete(self) -> bool:
        """Whether nothing more may come."""
        return False

    def clone(self) -> Self:
        """Copy the state; without any, the sampler itself will do."""
        return self
