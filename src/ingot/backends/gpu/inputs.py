"""The numbers of a batch on the device: one buffer, one or two transfers a step.

ids, positions, sequence of each token, tokens whose logits are wanted, tiles of queries (prompts),
the adapter of each token and its scale, its type, how many positions of its sequence an encoder
wrote, and for every cache group a table [sequences, blocks]. Each of them lies in a fixed place, so
a captured step finds the numbers of the next one there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.device_sampler import SamplingPlan
from ingot.backends.gpu.sampler import ROW_NUMBERS, DevicePlans, HostPlans

TILE_NUMBERS = 4  # of a tile of queries
TWINS = 2  # steps that may run at once
_ALIGNED = 4  # numbers: 16 bytes
_PARTS = 8  # of a decode step, a number for each token: all but tiles and tables
_NO_TILES = np.empty((0, TILE_NUMBERS), np.int32)
_NONE = np.empty(0, np.int32)
_NO_BATCH = Batch(_NONE, _NONE, _NONE, [], _NONE, ExecutionPhase.PROMPT)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Views of the buffer on the device."""

    tokens: int
    wanted_count: int
    tile_count: int
    ids: torch.Tensor
    types: torch.Tensor
    encoded: torch.Tensor
    positions: torch.Tensor
    sequences: torch.Tensor
    wanted: torch.Tensor
    tiles: torch.Tensor
    tables: tuple[torch.Tensor, ...]  # a group each
    adapters: torch.Tensor  # slots of the tokens' adapters, below 0 for none
    adapter_scales: torch.Tensor  # floats


class InputBuffer:
    """The buffer and its pinned twin on the host.

    Every part lies in the same place whatever the batch is, at a multiple of 16 bytes: captured
    steps find it there, and the alignment of a pointer never asks for another kernel.
    """

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
        self.blocks, self.groups = blocks, groups
        self._tokens = tokens
        tiles = sequences + tokens // query_tile
        # The position after those of all tokens is -1: that of a tile without queries.
        sizes = [tokens, tokens + 1, tokens, tokens, TILE_NUMBERS * tiles, *[tokens] * 4]
        sizes += [sequences * blocks] * groups
        rooms = [_room(size) for size in sizes]
        ends = np.cumsum(rooms).tolist()
        places = [slice(end - room, end) for end, room in zip(ends, rooms, strict=True)]
        self._device = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        self._host = torch.zeros(ends[-1], dtype=torch.int32, pin_memory=device.type != "cpu")
        self._parts = [self._device[place] for place in places]
        self._tables = places[9:]
        self._numbers = [self._host[place].numpy() for place in places]
        self._numbers[1][tokens:] = -1
        self._sent = torch.cuda.Event() if device.type != "cpu" else None

    def inputs(self, tokens: int, wanted: int, tiles: int) -> Inputs:
        """The parts for these counts."""
        (
            ids, positions, sequences, outputs, queries, adapters, scales, types, encoded, *tables
        ) = self._parts  # fmt: skip
        return Inputs(
            tokens=tokens,
            wanted_count=wanted,
            tile_count=tiles,
            ids=ids,
            types=types,
            encoded=encoded,
            positions=positions,
            sequences=sequences,
            wanted=outputs,
            tiles=queries,
            tables=tuple(tables),
            adapters=adapters,
            adapter_scales=scales.view(torch.float32),
        )

    def fill(self, batch: Batch, inputs: Inputs, tiles: NDArray[np.int32]) -> None:
        """Send a batch; the counts of `inputs` may be larger, and what is left does nothing."""
        real, sequences = len(batch.ids), len(batch.counts)
        if self._sent:  # the twin may still be in transfer for the last step
            self._sent.synchronize()
        (
            ids, positions, of_tokens, wanted, queries, adapters, scales, types, encoded, *tables
        ) = self._numbers  # fmt: skip
        ids[:real] = batch.ids
        ids[real : inputs.tokens] = 0
        types[: inputs.tokens] = 0
        if batch.types is not None:
            types[:real] = batch.types
        if batch.encoded is not None:
            encoded[:real] = np.repeat(batch.encoded, batch.counts)
        positions[:real] = batch.positions
        positions[real : inputs.tokens] = -1
        of_tokens[:real] = np.repeat(np.arange(sequences, dtype=np.int32), batch.counts)
        of_tokens[real : inputs.tokens] = 0
        wanted[: len(batch.outputs)] = batch.outputs
        wanted[len(batch.outputs) : inputs.wanted_count] = 0
        queries[: tiles.size] = tiles.reshape(-1)
        rest = queries[tiles.size : TILE_NUMBERS * inputs.tile_count].reshape(-1, TILE_NUMBERS)
        rest[:] = (0, self._tokens, 0, 0)
        _fill_adapters(batch, adapters[: inputs.tokens], scales[: inputs.tokens])
        for group, table in enumerate(tables):
            rows = table[: sequences * self.blocks].reshape(-1, self.blocks)
            for number, held in enumerate(batch.tables):
                rows[number, : len(held[group])] = held[group]
        self._send(sequences)

    def clear(self, inputs: Inputs) -> None:
        """Send a batch without any token."""
        self.fill(_NO_BATCH, inputs, _NO_TILES)

    def _send(self, sequences: int) -> None:
        """All but the tables at once, and of those the rows of so many sequences."""
        used = [slice(0, self._tables[0].start if self._tables else len(self._host))]
        for table in self._tables:
            used.append(slice(table.start, table.start + sequences * self.blocks))
        for part in used:
            self._device[part].copy_(self._host[part], non_blocking=True)
        if self._sent:
            self._sent.record()


def _fill_adapters(batch: Batch, slots: NDArray[np.int32], scale_bits: NDArray[np.int32]) -> None:
    """The adapter of each token and its scale; tokens that fill a batch up have none."""
    slots[:] = -1
    if batch.adapters is not None and batch.adapter_scales is not None:
        real = len(batch.ids)
        slots[:real] = np.repeat(batch.adapters, batch.counts)
        scale_bits[:real] = np.repeat(batch.adapter_scales, batch.counts).view(np.int32)


def _room(size: int) -> int:
    """Numbers that a part takes, so that the next one begins at a multiple of 16 bytes."""
    return -(-size // _ALIGNED) * _ALIGNED


class SingleTokens:
    """One new token of each of `size` sequences, in a separate buffer: for steps that repeat.

    On the host there are two twins of it, used in turn: one may still be in transfer for a step
    while the other is filled for the next. Whoever fills it has waited for the step before these.
    """

    def __init__(self, buffer: InputBuffer, device: torch.device, size: int) -> None:
        groups, blocks = buffer.groups, buffer.blocks
        room, table = _room(size), _room(size * blocks)
        count = size * ROW_NUMBERS + _PARTS * room + groups * table
        self._device = torch.zeros(count, dtype=torch.int32, device=device)
        self._twins = [_Twin(count, buffer, device, size) for _ in range(TWINS)]
        first = size * ROW_NUMBERS
        self.plans = DevicePlans.of(self._device[:first])
        parts = self._device[first : first + _PARTS * room].view(_PARTS, room)
        tables = tuple(self._device[first + _PARTS * room :].view(groups, table))
        self.inputs = Inputs(
            tokens=size,
            wanted_count=size,
            tile_count=0,
            ids=parts[0],
            types=parts[6],
            encoded=parts[7],
            positions=parts[1],
            sequences=parts[2],
            wanted=parts[3],
            tiles=parts[0][:0],
            tables=tables,
            adapters=parts[4],
            adapter_scales=parts[5].view(torch.float32),
        )

    def fill(self, twin: int, batch: Batch, plans: Sequence[SamplingPlan | None]) -> None:
        """Put a batch into a twin; tokens that it has too few of are at position -1."""
        self._twins[twin].fill(batch, plans)

    def clear(self) -> None:
        """Send a batch without any token."""
        self.fill(0, _NO_BATCH, [])
        self.send(0)

    def send(self, twin: int) -> None:
        """To the device."""
        self._device.copy_(self._twins[twin].host, non_blocking=True)


class _Twin:
    """Sampling plans, ids, positions, sequences, the wanted, adapters, and tables of blocks."""

    def __init__(self, count: int, buffer: InputBuffer, device: torch.device, size: int) -> None:
        self.host = torch.zeros(count, dtype=torch.int32, pin_memory=device.type != "cpu")
        first = size * ROW_NUMBERS
        self._plans = HostPlans(self.host[:first])
        room, table = _room(size), _room(size * buffer.blocks)
        parts: NDArray[np.int32] = (
            self.host[first : first + _PARTS * room].view(_PARTS, room).numpy()
        )
        self._ids, self._positions = parts[0, :size], parts[1, :size]
        parts[2:4, :size] = np.arange(size)  # sequences, and the wanted
        self._adapters, self._scales = parts[4, :size], parts[5, :size]
        self._encoded = parts[7, :size]
        self._tables: list[NDArray[np.int32]] = [
            group[: size * buffer.blocks].numpy().reshape(size, buffer.blocks)
            for group in self.host[first + _PARTS * room :].view(buffer.groups, table)
        ]
        # The table of each sequence that is written there. A table that grows is a new array, so
        # the same array need not be written again.
        self._written: list[list[NDArray[np.int32] | None]] = [
            [None] * size for _ in range(buffer.groups)
        ]

    def fill(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> None:
        real = len(batch.ids)
        self._plans.fill(plans)
        self._ids[:real] = batch.ids
        self._positions[:real] = batch.positions
        self._positions[real:] = -1
        if batch.encoded is not None:
            self._encoded[:real] = batch.encoded
        _fill_adapters(batch, self._adapters, self._scales)
        for group, (table, written) in enumerate(zip(self._tables, self._written, strict=True)):
            for number, held in enumerate(batch.tables):
                blocks = held[group]
                if blocks is not written[number]:
                    table[number, : len(blocks)] = blocks
                    written[number] = blocks


def query_tiles(batch: Batch, size: int) -> NDArray[np.int32]:
    """Sequence, first token, tokens and length of the sequence of every tile of queries."""
    if batch.phase is not ExecutionPhase.PROMPT:
        return _NO_TILES
    ends = (batch.positions[np.cumsum(batch.counts) - 1] + 1).tolist()
    tiles = []
    start = 0
    for sequence, count in enumerate(batch.counts.tolist()):
        for first in range(0, count, size):
            tiles.append((sequence, start + first, min(size, count - first), ends[sequence]))
        start += count
    return np.array(tiles, np.int32).reshape(-1, TILE_NUMBERS)
