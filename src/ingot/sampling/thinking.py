"""ThinkingBudget: how long a text may reason before its answer has to begin."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """Made for a model's style by `ingot.reply.thinking_budget`."""

    tokens: int
    opens: bytes  # the mark that a text which reasons begins with; none: the prompt had it
    closes: bytes  # the mark that ends it
    forced: tuple[int, ...]  # the tokens that come when the budget is spent
