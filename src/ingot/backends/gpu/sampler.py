"""Launch the device sampler; the memory that it needs for sampling plans and for its work."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from ingot.backends.device_sampler import LogitEdits, SamplingPlan
from ingot.backends.gpu.kernels.sample import (
    DOUBLES,
    EDITS,
    FLOATS,
    INTS,
    MOST,
    sample_kernel,
    shortlist_kernel,
)
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.variants import Start

_SLICE = 4096  # logits that a program looks through
_FEW = 4096  # candidates: what K = 40 leaves of 262,144 tokens
_MANY = 32768  # more would overflow the kernel's counts
_DOUBLES, _INTS, _FLOATS = DOUBLES.value, INTS.value, FLOATS.value
_EDITS, _MOST = EDITS.value, MOST.value
ROW_NUMBERS = 2 * _DOUBLES + _INTS + _FLOATS + 2 * _EDITS  # of 32 bits: the plan of a row


def accepts(plan: SamplingPlan, vocabulary: int) -> bool:
    """Whether the kernels can follow this plan."""
    edits = plan.edits
    return (
        1 <= plan.count <= _MOST
        and -(-vocabulary // _SLICE) * _MOST <= _MANY
        and (edits is None or len(edits.ids) <= _EDITS)
    )


@dataclass(frozen=True, slots=True)
class DevicePlans:
    """The sampling plans of a step's rows, on the device: parts of the step's one transfer."""

    doubles: torch.Tensor
    ints: torch.Tensor
    floats: torch.Tensor
    edited: torch.Tensor
    lowered: torch.Tensor

    @classmethod
    def of(cls, numbers: torch.Tensor) -> "DevicePlans":
        """Views of rows * ROW_NUMBERS 32-bit numbers, the first of which is well aligned."""
        rows = len(numbers) // ROW_NUMBERS
        sizes = [rows * n for n in (2 * _DOUBLES, _INTS, _FLOATS, _EDITS, _EDITS)]
        doubles, ints, floats, edited, lowered = numbers.split(sizes)
        return cls(
            doubles.view(torch.float64).view(rows, -1),
            ints.view(rows, -1),
            floats.view(torch.float32).view(rows, -1),
            edited.view(rows, -1),
            lowered.view(torch.float32).view(rows, -1),
        )


class HostPlans:
    """The same on the host."""

    def __init__(self, numbers: torch.Tensor) -> None:
        views = DevicePlans.of(numbers)
        self._doubles: NDArray[np.float64] = views.doubles.numpy()
        self._ints: NDArray[np.int32] = views.ints.numpy()
        self._floats: NDArray[np.float32] = views.floats.numpy()
        self._edited: NDArray[np.int32] = views.edited.numpy()
        self._lowered: NDArray[np.float32] = views.lowered.numpy()
        self._floats[:, 1] = 1.0
        self._edits: list[LogitEdits | None] = [None] * len(self._ints)  # written, of each row

    def fill(self, plans: Sequence[SamplingPlan | None]) -> None:
        """Write the rows' plans; rows without one sample nothing."""
        self._ints[:, 0] = 0
        rows = [row for row, plan in enumerate(plans) if plan is not None]
        held = [plan for plan in plans if plan is not None]
        if not held:
            return
        # Column by column: an assignment for every number of every row would take a millisecond.
        self._doubles[rows, :3] = [(plan.share, plan.distance, plan.uniform) for plan in held]
        self._ints[rows, :2] = [(plan.count, plan.least) for plan in held]
        self._floats[rows, 0] = [plan.temperature for plan in held]
        for row, plan in zip(rows, held, strict=True):
            if (edits := plan.edits) is not self._edits[row]:
                self._edit(row, edits)

    def _edit(self, row: int, edits: LogitEdits | None) -> None:
        self._edits[row] = edits
        count = 0 if edits is None else len(edits.ids)
        self._ints[row, 2], self._floats[row, 1] = count, 1.0
        if edits is not None:
            self._edited[row, :count] = edits.ids
            self._lowered[row, :count] = edits.lowered
            self._floats[row, 1] = edits.repeat


class RowPlans:
    """The plans of up to `rows` rows, on the host and on the device."""

    def __init__(self, device: torch.device, rows: int) -> None:
        pinned = device.type != "cpu"
        self._host = torch.zeros(rows * ROW_NUMBERS, dtype=torch.int32, pin_memory=pinned)
        self._device = torch.zeros(rows * ROW_NUMBERS, dtype=torch.int32, device=device)
        self._plans = HostPlans(self._host)
        self.plans = DevicePlans.of(self._device)

    def fill(self, plans: Sequence[SamplingPlan | None]) -> None:
        """Write plans. What was written before has been sent."""
        self._plans.fill(plans)

    def send(self) -> None:
        """To the device."""
        self._device.copy_(self._host, non_blocking=True)


def sampling_plans(plans: Sequence[SamplingPlan], device: torch.device) -> DevicePlans:
    """Plans that stay the same from step to step, on the device."""
    numbers = torch.zeros(len(plans) * ROW_NUMBERS, dtype=torch.int32)
    HostPlans(numbers).fill(plans)
    return DevicePlans.of(numbers.to(device))


@dataclass(frozen=True, slots=True)
class SamplerWork:
    """Memory for the rows of one step; the tokens are those of a decode step and a prompt chunk."""

    logits: torch.Tensor  # [rows, vocabulary]
    keys: torch.Tensor  # int64 [rows, slices, MOST]: the likeliest of every slice
    best: torch.Tensor  # int64 [rows, 2 * MOST]
    powers: torch.Tensor  # float64 [rows, 3 * MOST]
    tokens: torch.Tensor  # int32 [2 * prompt_rows]: of a decode step, then of a prompt chunk

    @classmethod
    def of(
        cls, memory: DeviceMemory, vocabulary: int, rows: int, *, sampled: bool = True
    ) -> "SamplerWork":
        """For a vocabulary of that many tokens, and steps of so many rows.

        If nothing is `sampled`, there is room for what comes out of a step alone.
        """
        slices = -(-vocabulary // _SLICE)
        work = (8 * slices * _MOST, 16 * _MOST, 24 * _MOST) if sampled else (0, 0, 0)
        sizes = [rows * size for size in (4 * vocabulary, *work)]
        sizes.append(2 * aligned(4 * rows) if sampled else 0)
        pool = memory.pool(sum(aligned(size) for size in sizes))
        logits, keys, best, powers, tokens = (pool.take(size) for size in sizes)
        return cls(
            logits.view(torch.float32).view(rows, vocabulary),
            keys.view(torch.int64),
            best.view(torch.int64),
            powers.view(torch.float64),
            tokens.view(torch.int32),
        )

    @property
    def rows(self) -> int:
        """The most rows of a step."""
        return len(self.logits)

    @property
    def prompt_rows(self) -> int:
        """Where the tokens of a prompt chunk begin."""
        return len(self.tokens) // 2

    def sample(self, plans: DevicePlans, start: Start, first: int = 0) -> None:
        """Sample the tokens of the first rows of the logits, as many as there are plans.

        They are put after the `first` tokens.
        """
        rows, vocabulary = len(plans.ints), self.logits.shape[1]
        slices = -(-vocabulary // _SLICE)
        start(
            shortlist_kernel,
            (slices, rows),
            logits=self.logits,
            ints=plans.ints,
            floats=plans.floats,
            edited=plans.edited,
            lowered=plans.lowered,
            keys=self.keys,
            vocabulary=vocabulary,
            slices=slices,
            SLICE=_SLICE,
            num_warps=8,
            enable_fp_fusion=False,
        )
        many = int(triton.next_power_of_2(slices * _MOST))
        start(
            sample_kernel,
            (rows,),
            keys=self.keys,
            ints=plans.ints,
            floats=plans.floats,
            doubles=plans.doubles,
            best=self.best,
            work=self.powers,
            tokens=self.tokens[first:],
            slices=slices,
            FEW=min(_FEW, many),
            MANY=many,
            SLICES=triton.next_power_of_2(slices),
            num_warps=8,
            enable_fp_fusion=False,
        )
