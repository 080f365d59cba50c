"""The launches of a step, and what they need to know of its batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Step:
    """A batch on the device, and where its logits go."""

    inputs: Inputs
    phase: ExecutionPhase
    logits: torch.Tensor
    single: bool  # a generation in which every sequence has one token

    def rows(self, selected: bool) -> int:
        """Of a value: of all tokens, or of those whose logits are wanted."""
        return self.inputs.wanted_count if selected else self.inputs.tokens


Launch = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class Program:
    """All that a step launches, operation by operation."""

    launches: Sequence[tuple[Launch, bool]]  # whether it only runs where logits are wanted

    def __len__(self) -> int:
        return len(self.launches)

    def run(self, step: Step, part: slice = slice(None)) -> None:
        """Start every kernel of a step, or of a part of its operations."""
        for launch, selected in self.launches[part]:
            if step.inputs.wanted_count or not selected:
                launch(step)
