"""What a backend runs in one step: tokens of one or several sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Ints


class ExecutionPhase(Enum):
    """Which family of kernels runs: many tokens of a prompt, or one new token each."""

    PROMPT = "prompt"
    GENERATION = "generation"


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens, sequence after sequence."""

    ids: Ints  # [tokens]; below 0 for tokens not known yet (device_sampler.py)
    positions: Ints  # [tokens]
    counts: Ints  # [sequences]: how many of the tokens belong to each
    tables: Sequence[Sequence[Ints]]  # [sequences][cache groups][blocks]
    outputs: Ints  # the tokens whose logits are wanted
    phase: ExecutionPhase
    types: Ints | None = None  # [tokens], of models that tell kinds of tokens apart; None: all 0
    rows: NDArray[np.float32] | None = None  # [tokens, width], of graphs that begin with TakeRows
    adapters: Ints | None = None  # [sequences]: slots, below 0 for none; None: no sequence has one
    adapter_scales: NDArray[np.float32] | None = None  # [sequences], if there are adapters
    encoded: Ints | None = None  # [sequences]: positions that an encoder wrote, if there is one
    # [sequences]: whether the latents of a prompt are expanded (`Attend`), not 0; None: of none
    expanded: Ints | None = None
