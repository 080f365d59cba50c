"""AdapterBank: the adapters on a device, and what linear layers and the embedding add of them.

Nothing is asked of the device before the first adapter. From then on tables say where the matrices
of every slot are; captured steps read them there, so another adapter in a slot needs no new
capture. Only a larger rank than before does: it needs other memory, which steps name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import triton

from ingot.adapters import Adapter, FloatMatrix, LowRank
from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.adapters import (
    RANKS,
    ROWS,
    Low,
    Tables,
    Target,
    Uses,
    activate_rows_kernel,
    adapter_down_kernel,
    adapter_token_kernel,
    adapter_up_kernel,
)
from ingot.backends.gpu.variants import Start
from ingot.graph import ops as o

MAX_SLOTS = 1024
PIECE_TOKENS = 512  # whose gates and ups are in scratch memory at once
_DEPTH = 64  # columns of a step
_OUTPUTS = 64  # of a program
_ACTIVATED = 1024  # elements of a program


@dataclass(frozen=True, slots=True)
class AdapterMemory:
    """What steps with adapters read and write on the device."""

    down: torch.Tensor
    up: torch.Tensor
    ranks: torch.Tensor
    scales: torch.Tensor
    scratch: torch.Tensor  # floats: gates and ups
    low: torch.Tensor
    rank: int  # the most that `low` has room for


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The rows of a step, or of a piece of one, and what launches its kernels."""

    memory: AdapterMemory
    uses: Uses
    tokens: int
    phase: ExecutionPhase
    start: Start

    @property
    def live(self) -> int:
        """Rows of a tile: one when decoding, so that as many programs as possible run."""
        return 1 if self.phase is ExecutionPhase.GENERATION else int(ROWS)

    def after(self, rows: int, most: int) -> "AdapterRows":
        """The rows after the first ones, at most so many."""
        slots, scales, wanted = self.uses
        if wanted is None:
            slots, scales = slots[rows:], scales[rows:]
        else:
            wanted = wanted[rows:]
        uses = Uses(slots, scales, wanted)
        return replace(self, uses=uses, tokens=min(self.tokens - rows, most))


@dataclass(slots=True)
class AdapterBank:
    """The adapters of one backend."""

    ops: Sequence[o.Op]
    device: Device
    tokens: int  # the most of a step
    _count: int = field(init=False, default=0)  # matrices that can be adapted
    _sites: dict[o.Weight | tuple[o.Weight, ...], int] = field(init=False)
    memory: AdapterMemory | None = field(init=False, default=None)  # of steps from now on
    _held: dict[int, list[torch.Tensor]] = field(init=False, default_factory=dict)  # by slot

    def __post_init__(self) -> None:
        self._sites = {}
        for op in self.ops:
            for site in (op.adapted_table, op.adapted_matrices):
                if site:
                    self._sites[site] = self._count
                    self._count += len(site) if isinstance(site, tuple) else 1

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot; there is memory for its rank."""
        if self.memory is None:
            return
        memory, held = self.memory, list[torch.Tensor]()
        table = torch.zeros((3, self._count), dtype=torch.int64)
        scales = torch.zeros(self._count)
        for site, low in self._additions(adapter) if adapter else ():
            down, up = (self._sent(matrix) for matrix in (low.down, low.up))
            held += (down, up)
            table[:, site] = torch.tensor([down.data_ptr(), up.data_ptr(), low.rank])
            scales[site] = low.scale
        self.device.wait()  # no step reads the tables now
        memory.down[:, slot] = table[0].to(memory.down.device)
        memory.up[:, slot] = table[1].to(memory.up.device)
        memory.ranks[:, slot] = table[2].to(memory.ranks.device, torch.int32)
        memory.scales[:, slot] = scales.to(memory.scales.device)
        self.device.wait()
        self._held[slot] = held

    def _additions(self, adapter: Adapter) -> list[tuple[int, LowRank]]:
        """What an adapter adds, by the number of the matrix."""
        found: list[tuple[int, LowRank]] = []
        for op in self.ops:
            if op.adapted_table and (low := adapter.of_table(op.adapted_table)):
                found.append((self._sites[op.adapted_table], low))
            for index, weight in enumerate(op.adapted_matrices):
                if low := adapter.of_matrix(weight):
                    found.append((self._sites[op.adapted_matrices] + index, low))
        return found

    def _sent(self, matrix: FloatMatrix) -> torch.Tensor:
        return torch.from_numpy(matrix.floats().astype(np.float16)).to(self.device.torch)

    def room_for(self, rank: int, before: AdapterMemory | None) -> AdapterMemory:
        """Memory for adapters of that rank, with the tables of what there was `before`."""
        rank = max(int(RANKS), triton.next_power_of_2(rank))
        device = self.device.torch
        parts = max(len(op.adapted_matrices) for op in self.ops)
        low = torch.zeros(max(parts, 1) * self.tokens * rank, device=device)
        if before is not None:
            return replace(before, low=low, rank=rank)
        shape = (self._count, MAX_SLOTS)
        widths = [
            sum(part.out.width for part in op.parts)
            for op in self.ops
            if isinstance(op, o.FusedLinear) and op.activation
        ]
        scratch = min(self.tokens, PIECE_TOKENS) * max(widths, default=0)
        return AdapterMemory(
            down=torch.zeros(shape, dtype=torch.int64, device=device),
            up=torch.zeros(shape, dtype=torch.int64, device=device),
            ranks=torch.zeros(shape, dtype=torch.int32, device=device),
            scales=torch.zeros(shape, device=device),
            scratch=torch.zeros(max(scratch, 1), device=device),
            low=low,
            rank=rank,
        )

    def add_linear(
        self,
        op: o.FusedLinear,
        rows: AdapterRows,
        x: torch.Tensor,
        stride: int,
        target: Target,
    ) -> None:
        """Add to the values of a linear layer's parts, or to single ones side by side."""
        tables = self._tables(rows, self._sites[op.adapted_matrices])
        tiles, parts = triton.cdiv(rows.tokens, rows.live), len(op.parts)
        rows.start(
            adapter_down_kernel,
            (tiles, rows.memory.rank // int(RANKS), parts),
            x=x,
            stride=stride,
            columns=op.source.width,
            tokens=rows.tokens,
            uses=rows.uses,
            tables=tables,
            low=self._low(rows),
            LIVE=rows.live,
            DEPTH=_DEPTH,
            **self.device.order(),
        )
        self._add_up(rows, tables, target, parts)

    def add_embedding(
        self, op: o.Embed, rows: AdapterRows, ids: torch.Tensor, sampled: torch.Tensor, out: Target
    ) -> None:
        """Add to the rows of the embedding."""
        tables = self._tables(rows, self._sites[op.weight])
        rows.start(
            adapter_token_kernel,
            (triton.cdiv(rows.tokens, rows.live), rows.memory.rank // int(RANKS)),
            ids=ids,
            sampled=sampled,
            tokens=rows.tokens,
            uses=rows.uses,
            tables=tables,
            low=self._low(rows),
            LIVE=rows.live,
            **self.device.order(),
        )
        self._add_up(rows, tables, out, 1)

    def _add_up(self, rows: AdapterRows, tables: Tables, target: Target, parts: int) -> None:
        blocks = triton.cdiv(max(target.widths), _OUTPUTS)
        rows.start(
            adapter_up_kernel,
            (triton.cdiv(rows.tokens, rows.live), blocks, parts),
            tokens=rows.tokens,
            uses=rows.uses,
            tables=tables,
            low=self._low(rows),
            target=target,
            LIVE=rows.live,
            BLOCK=_OUTPUTS,
            **self.device.order(),
        )

    def activate(
        self,
        rows: AdapterRows,
        out: torch.Tensor,
        width: int,
        half_scale: float,
        code: int,
        *,
        gated: bool,
    ) -> None:
        """The activation of what is in scratch memory."""
        rows.start(
            activate_rows_kernel,
            (triton.cdiv(width, _ACTIVATED), rows.tokens),
            x=rows.memory.scratch,
            out=out,
            width=width,
            half_scale=half_scale,
            ACTIVATION=code,
            GATED=gated,
            BLOCK=_ACTIVATED,
            **self.device.order(),
        )

    def _low(self, rows: AdapterRows) -> Low:
        return Low(rows.memory.low, self.tokens, rows.memory.rank)

    def _tables(self, rows: AdapterRows, first: int) -> Tables:
        memory = rows.memory
        return Tables(
            memory.down[first:], memory.up[first:], memory.ranks[first:], memory.scales[first:],
            MAX_SLOTS,
        )  # fmt: skip
