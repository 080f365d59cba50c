"""Sums of squares of what goes into every matrix, added up on the device.

In: operations of a fused graph and the values that they are about to read. Out: sums and counts by
tensor, of each matrix if a tensor holds those of experts.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.gpu.values import Values
from ingot.graph import ops as o

Sums = tuple[NDArray[np.float64], NDArray[np.int64]]  # [matrices, columns], [matrices]


def _squares(rows: torch.Tensor) -> torch.Tensor:
    return rows.double().square()


class DeviceSums:
    """What has been seen of all matrices of layers."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def add(self, tokens: int, op: o.Op, values: Values) -> None:
        """Add what an operation reads, of so many tokens."""
        if op.layer is None:
            return
        match op:
            case o.FusedLinear():
                squares = _squares(values.rows(op.source, tokens))
                # Parts may be rows of one tensor, which counts once.
                for weight in {part.weight.name: part.weight for part in op.parts}.values():
                    sums, counts = self._of(weight)
                    sums += squares.sum(0)
                    counts += tokens
            case o.ExpertGate():
                self._add_chosen([part.weight for part in op.parts], op, values, tokens)
            case o.ExpertMix():
                self._add_chosen([op.weight], op, values, tokens)

    def _add_chosen(
        self,
        weights: Sequence[o.Weight],
        op: o.ExpertGate | o.ExpertMix,
        values: Values,
        tokens: int,
    ) -> None:
        """Each chosen expert reads the token's row, or its own part of it."""
        used, columns = op.choice.width // 2, weights[0].shape[-1]
        chosen = values.rows(op.choice, tokens)[:, :used].reshape(-1)
        squares = _squares(values.rows(op.source, tokens)).view(tokens, -1, columns)
        squares = squares.expand(tokens, used, columns).reshape(-1, columns)
        for weight in weights:
            sums, counts = self._of(weight)
            experts = torch.arange(len(counts), device=self._device)
            own = experts[:, None] == chosen  # [experts, pairs]
            sums += own.double() @ squares
            counts += own.sum(1)

    def _of(self, weight: o.Weight) -> tuple[torch.Tensor, torch.Tensor]:
        if weight.name not in self._sums:
            matrices = weight.shape[0] if len(weight.shape) > 2 else 1
            self._sums[weight.name] = (
                torch.zeros(matrices, weight.shape[-1], dtype=torch.float64, device=self._device),
                torch.zeros(matrices, dtype=torch.int64, device=self._device),
            )
        return self._sums[weight.name]

    def found(self) -> dict[str, Sums]:
        """All sums and counts, by tensor."""
        return {
            name: (sums.cpu().numpy(), counts.cpu().numpy())
            for name, (sums, counts) in self._sums.items()
        }
