"""Results of `LLM` other than completions."""

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Score:
    """The tokens of a text and their log-probabilities."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of the last tokens; the first token of all has none

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability."""
        return exp(-sum(self.logprobs) / len(self.logprobs)) if self.logprobs else 1.0


@dataclass(frozen=True, slots=True)
class BeamText:
    """One result of a beam search."""

    text: str
    token_ids: tuple[int, ...]
    logprob: float  # of the whole text, its end included if it ended
