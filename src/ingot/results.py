"""What `LLM` gives back beside completions."""

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Score:
    """The tokens of a text and how likely the model finds them."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of the last tokens; nothing is known of the first of all

    @property
    def perplexity(self) -> float:
        """exp of the mean surprise."""
        return exp(-sum(self.logprobs) / len(self.logprobs)) if self.logprobs else 1.0


@dataclass(frozen=True, slots=True)
class BeamText:
    """One of the texts that a beam search found."""

    text: str
    token_ids: tuple[int, ...]
    logprob: float  # of the whole text, its end included if it ended
