"""Task: tokens for the model to run, and what to do with the outcome.

The scheduler runs the tokens of `sequences`, in one step or several, and `receive` gets what each
step found. A task that then wants a token returns the logits to sample it from, and `take` gets the
token. Tasks do not know each other, the scheduler or the model.

Here is also the simplest task, which only reads logits; text_task.py writes a text, beam_task.py
runs a beam search, cache_file.py saves the KV cache of a text.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ingot.arrays import Floats, Ints, Logits
from ingot.backends.device_sampler import SamplingPlan
from ingot.engine.adapters import AdapterUse
from ingot.engine.channel import Channel
from ingot.engine.sequence import TokenSequence
from ingot.sampling import SampledToken, TokenSampler

ReadLogits = Callable[[int, Logits], None]  # position of the first row, rows


class Rows(NamedTuple):
    """Logits of some tokens of a sequence, one after the other."""

    sequence: TokenSequence
    start: int  # position of the first of the tokens
    logits: Logits  # [tokens, vocabulary]


@dataclass(slots=True)
class Outcome:
    """What a step found for a task."""

    rows: Sequence[Rows] = ()  # the logits that its sequences asked for
    token: int | None = None  # sampled on the device, instead of rows


class TokenWanted(NamedTuple):
    """A task's next token is to be sampled from a row of logits."""

    sampler: TokenSampler
    row: Logits  # [1, vocabulary], which the sampler may change


class Task(ABC):
    """Runs in a scheduler until its channel has ended."""

    channel: Channel[Any]
    sequences: list[TokenSequence]  # all their tokens run before the task continues
    priority: int = 0  # of those that wait, the lowest value is admitted first

    @property
    def is_ready(self) -> bool:
        """Whether all tokens have run."""
        return all(sequence.pending <= 0 for sequence in self.sequences)

    @abstractmethod
    def receive(self, outcome: Outcome) -> TokenWanted | SampledToken | None:
        """Take the outcome of a step in which some of its tokens ran.

        If the task continues with a token, it returns how to sample it, or the token itself if the
        device has sampled it.
        """

    def take(self, token: SampledToken) -> None:
        """Continue with the token that it asked for."""
        raise NotImplementedError("this task never asks for a token")

    def begin(self) -> None:
        """Some of its tokens are about to run."""
        return

    def sampling_plan(self, ahead: int = 0) -> SamplingPlan | None:  # noqa: ARG002 (see TextTask)
        """How a device may sample its next token, or the one `ahead` tokens later."""
        return None

    def see_hidden(
        self,
        sequence: TokenSequence,  # noqa: ARG002 (see TextTask)
        start: int,  # noqa: ARG002
        hidden: Floats,  # noqa: ARG002
    ) -> None:
        """Hidden states of its tokens from `start` on, if the model keeps them."""
        return

    @property
    def ends_with_next(self) -> bool:
        """Whether the next token is its last one, whichever it is."""
        return False

    def expire(self) -> None:
        """End if its time limit has passed."""
        return

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self.channel.fail(error)


class LogitsTask(Task):
    """Passes the logits of every token from `first` on to a function, some rows at a time."""

    def __init__(
        self, tokens: Ints, first: int, read: ReadLogits, adapter: AdapterUse | None = None
    ) -> None:
        self.channel: Channel[bool] = Channel()
        self.sequences = [TokenSequence(tokens, rows_from=first, adapter=adapter)]
        self._read = read

    def receive(self, outcome: Outcome) -> None:
        """Read the rows of a step."""
        for rows in outcome.rows:
            self._read(rows.start, rows.logits)
        if self.is_ready:
            self.channel.finish(True)


def joined(rows: Sequence[Logits]) -> Logits:
    """Rows as one array, which is not copied if it is one already."""
    return rows[0] if len(rows) == 1 else np.concatenate(rows)
