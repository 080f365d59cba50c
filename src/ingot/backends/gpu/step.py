"""What the launches of one step need to know of its batch."""

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
