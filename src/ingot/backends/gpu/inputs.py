"""The numbers of a batch on the device: one buffer, one transfer a step.

ids, positions, sequence of each token, tokens whose logits are wanted, tiles of queries (prompts),
and for every cache group a table [sequences, blocks]. Where each of them lies depends on the counts
alone, so a captured step finds the numbers of the next one in the same places.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.batch import Batch

QUERY_TILE = 128  # queries of one sequence that a program of prompt attention takes


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
        self, device: torch.device, *, tokens: int, sequences: int, groups: int, blocks: int
    ) -> None:
        self.blocks = blocks
        self._groups = groups
        size = 4 * tokens + 3 * (sequences + tokens // QUERY_TILE) + groups * sequences * blocks
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type != "cpu")
        self._numbers: NDArray[np.int32] = self._host.numpy()
        self._sent = torch.cuda.Event() if device.type != "cpu" else None

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(self._device.nbytes)

    def views(self, tokens: int, wanted: int, tiles: int, sequences: int) -> tuple[Inputs, int]:
        """The parts for these counts, and how many numbers they are."""
        ends = np.cumsum([0, tokens, tokens, tokens, wanted, 3 * tiles]).tolist()
        ids, positions, of_tokens, outputs, queries = (self._device[a:b] for a, b in pairwise(ends))
        size = sequences * self.blocks
        starts = [ends[-1] + group * size for group in range(self._groups)]
        tables = tuple(self._device[start : start + size] for start in starts)
        views = Inputs(tokens, wanted, tiles, ids, positions, of_tokens, outputs, queries, tables)
        return views, ends[-1] + self._groups * size

    def fill(
        self, batch: Batch, *, tokens: int, wanted: int, tiles: NDArray[np.int32], sequences: int
    ) -> Inputs:
        """Put a batch there; more tokens than it has are padding, at position -1."""
        views, total = self.views(tokens, wanted, len(tiles), sequences)
        if self._sent:
            self._sent.synchronize()  # the twin may still be on its way for the last step
        numbers, real = self._numbers, len(batch.ids)
        numbers[:real] = batch.ids
        numbers[real:tokens] = 0
        numbers[tokens : tokens + real] = batch.positions
        numbers[tokens + real : 2 * tokens] = -1
        numbers[2 * tokens : 3 * tokens] = 0
        numbers[2 * tokens : 2 * tokens + real] = np.repeat(
            np.arange(len(batch.counts), dtype=np.int32), batch.counts
        )
        at = 3 * tokens
        numbers[at : at + wanted] = 0
        numbers[at : at + len(batch.outputs)] = batch.outputs
        at += wanted
        numbers[at : at + tiles.size] = tiles.reshape(-1)
        at += tiles.size
        for group in range(self._groups):
            for number, held in enumerate(batch.tables):
                start = at + (group * sequences + number) * self.blocks
                numbers[start : start + len(held[group])] = held[group]
        self._device[:total].copy_(self._host[:total], non_blocking=True)
        if self._sent:
            self._sent.record()
        return views


def query_tiles(batch: Batch) -> NDArray[np.int32]:
    """Sequence, first token and number of tokens of every tile of queries."""
    tiles = []
    start = 0
    for sequence, count in enumerate(batch.counts.tolist()):
        for first in range(0, count, QUERY_TILE):
            tiles.append((sequence, start + first, min(QUERY_TILE, count - first)))
        start += count
    return np.array(tiles, np.int32).reshape(-1, 3)
