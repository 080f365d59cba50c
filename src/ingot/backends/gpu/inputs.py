"""The numbers of a batch on the device: one buffer, one transfer a step.

ids, positions, sequence of each token, tokens whose logits are wanted, tiles of queries (prompts),
and for every cache group a table [sequences, blocks]. Where each of them lies depends on the counts
alone, so a captured step finds the numbers of the next one in the same places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.batch import Batch
from ingot.backends.device_sampler import SamplingPlan
from ingot.backends.gpu.sampler import ROW_NUMBERS, DevicePlans, HostPlans

TWINS = 2  # steps that may run at once


@dataclass(frozen=True, slots=True)
class Inputs:
    """Views of the buffer on the device."""

    tokens: int
    wanted_count: int
    tile_count: int
    ids: torch.Tensor
    positions: torch.Tensor
    sequences: torch.Tensor
    wanted: torch.Tensor
    tiles: torch.Tensor
    tables: tuple[torch.Tensor, ...]  # a group each


class InputBuffer:
    """The buffer and its pinned twin on the host."""

    def __init__(
        self,
        device: torch.device,
        *,
        tokens: int,
        sequences: int,
        groups: int,
        blocks: int,
        query_tile: int,
    ) -> None:
        """`query_tile`: queries of one sequence that a program of prompt attention takes."""
        self.blocks = blocks
        self.groups = groups
        size = 4 * tokens + 3 * (sequences + tokens // query_tile) + groups * sequences * blocks
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type != "cpu")
        self._numbers: NDArray[np.int32] = self._host.numpy()
        self._sent = torch.cuda.Event() if device.type != "cpu" else None

    def views(self, tokens: int, wanted: int, tiles: int, sequences: int) -> tuple[Inputs, int]:
        """The parts for these counts, and how many numbers they are."""
        ends = np.cumsum([0, tokens, tokens, tokens, wanted, 3 * tiles]).tolist()
        ids, positions, of_tokens, outputs, queries = (self._device[a:b] for a, b in pairwise(ends))
        size = sequences * self.blocks
        starts = [ends[-1] + group * size for group in range(self.groups)]
        tables = tuple(self._device[start : start + size] for start in starts)
        views = Inputs(tokens, wanted, tiles, ids, positions, of_tokens, outputs, queries, tables)
        return views, ends[-1] + self.groups * size

    def fill(self, batch: Batch, tiles: NDArray[np.int32]) -> Inputs:
        """Put a batch there."""
        tokens, wanted, sequences = len(batch.ids), len(batch.outputs), len(batch.counts)
        views, total = self.views(tokens, wanted, len(tiles), sequences)
        self._wait()
        numbers = self._numbers
        numbers[:tokens] = batch.ids
        numbers[tokens : 2 * tokens] = batch.positions
        numbers[2 * tokens : 3 * tokens] = np.repeat(
            np.arange(sequences, dtype=np.int32), batch.counts
        )
        at = 3 * tokens
        numbers[at : at + wanted] = batch.outputs
        at += wanted
        numbers[at : at + tiles.size] = tiles.reshape(-1)
        at += tiles.size
        for group in range(self.groups):
            for number, held in enumerate(batch.tables):
                start = at + (group * sequences + number) * self.blocks
                numbers[start : start + len(held[group])] = held[group]
        self._device[:total].copy_(self._host[:total], non_blocking=True)
        if self._sent:
            self._sent.record()
        return views

    def _wait(self) -> None:
        """The twin may still be in transfer for the last step."""
        if self._sent:
            self._sent.synchronize()


class SingleTokens:
    """One new token of each of `size` sequences, in a separate buffer: for steps that repeat.

    On the host there are two twins of it, used in turn: one may still be in transfer for a step
    while the other is filled for the next. Whoever fills it has waited for the step before these.
    """

    def __init__(self, buffer: InputBuffer, device: torch.device, size: int) -> None:
        groups, blocks = buffer.groups, buffer.blocks
        count = size * (ROW_NUMBERS + 4 + groups * blocks)
        self._device = torch.zeros(count, dtype=torch.int32, device=device)
        self._twins = [_Twin(count, buffer, device, size) for _ in range(TWINS)]
        first = size * ROW_NUMBERS
        self.plans = DevicePlans.of(self._device[:first])
        parts = self._device[first : first + 4 * size].view(4, size)
        tables = tuple(self._device[first + 4 * size :].view(groups, size * blocks))
        self.inputs = Inputs(
            size, size, 0, parts[0], parts[1], parts[2], parts[3], parts[0][:0], tables
        )

    def fill(self, twin: int, batch: Batch, plans: Sequence[SamplingPlan | None]) -> None:
        """Put a batch into a twin; tokens that it has too few of are at position -1."""
        self._twins[twin].fill(batch, plans)

    def send(self, twin: int) -> None:
        """To the device."""
        self._device.copy_(self._twins[twin].host, non_blocking=True)


class _Twin:
    """Sampling plans, ids, positions, sequences, the wanted, and tables of blocks."""

    def __init__(self, count: int, buffer: InputBuffer, device: torch.device, size: int) -> None:
        self.host = torch.zeros(count, dtype=torch.int32, pin_memory=device.type != "cpu")
        first = size * ROW_NUMBERS
        self._plans = HostPlans(self.host[:first])
        numbers: NDArray[np.int32] = self.host[first:].numpy()
        self._ids, self._positions = numbers[:size], numbers[size : 2 * size]
        numbers[2 * size : 4 * size] = np.tile(np.arange(size), 2)  # sequences, and the wanted
        self._tables = numbers[4 * size :].reshape(buffer.groups, size, buffer.blocks)

    def fill(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> None:
        real = len(batch.ids)
        self._plans.fill(plans)
        self._ids[:real] = batch.ids
        self._positions[:real] = batch.positions
        self._positions[real:] = -1
        for number, held in enumerate(batch.tables):
            for group, blocks in enumerate(held):
                self._tables[group, number, : len(blocks)] = blocks


def query_tiles(batch: Batch, size: int) -> NDArray[np.int32]:
    """Sequence, first token and number of tokens of every tile of queries."""
    tiles = []
    start = 0
    for sequence, count in enumerate(batch.counts.tolist()):
        for first in range(0, count, size):
            tiles.append((sequence, start + first, min(size, count - first)))
        start += count
    return np.array(tiles, np.int32).reshape(-1, 3)
