"""Launch the experts of a layer: choose them, bring tokens together, run and mix them."""

from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.codes import code
from ingot.backends.gpu.kernels.experts import expert_kernel
from ingot.backends.gpu.kernels.mix import mix_kernel
from ingot.backends.gpu.kernels.route import group_kernel, route_kernel
from ingot.backends.gpu.linear import stages_of, unroll_of
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.planes import CHUNK, Planes
from ingot.backends.gpu.step import Step
from ingot.graph import ops as o

FEW_COLUMNS = 16
_PAIRS = 256  # that a program puts in their places
_ROWS = 32  # of a warp
_ONE_ROWS, _FEW_ROWS, _MANY_ROWS = 32, 64, 128  # of a program, for 1, a few or many pairs


@dataclass(frozen=True, slots=True)
class ExpertWork:
    """Memory that the layers share, one after the other."""

    counts: torch.Tensor  # int32 [experts], all 0 between layers
    ranks: torch.Tensor  # int32 [pairs]
    pairs: torch.Tensor  # int32 [pairs]: sorted
    tiles: torch.Tensor  # int32 [3, most tiles]
    tile_count: torch.Tensor  # int32 [1]
    parts: torch.Tensor  # float32 [pairs, width]: what experts found, not mixed yet

    @classmethod
    def of(cls, memory: DeviceMemory, *, experts: int, pairs: int, widest: int) -> "ExpertWork":
        """For models with that many experts, and that many pairs in a step."""
        sizes = (4 * experts, 4 * pairs, 4 * pairs, 12 * (pairs + experts), 4, 4 * pairs * widest)
        pool = memory.pool(sum(aligned(size) for size in sizes))
        counts, ranks, order, tiles, count = (
            pool.take(size).view(torch.int32) for size in sizes[:-1]
        )
        parts = pool.take(sizes[-1]).view(torch.float32)
        return cls(counts, ranks, order, tiles, count, parts)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the pairs of a step are cut into tiles."""

    single: bool  # of one token: each is a tile, and nothing needs sorting
    columns: int  # pairs of a tile
    most: int  # tiles

    @classmethod
    def of(
        cls, tokens: int, used: int, experts: int, phase: ExecutionPhase, device: Device
    ) -> "Tiling":
        """Tiles a little larger than what an expert gets if all get the same."""
        fewest = 8 if device.assembly else 16
        pairs = tokens * used
        if phase is ExecutionPhase.GENERATION and tokens == 1:
            return cls(True, fewest, used)
        usual = int(triton.next_power_of_2(-(-pairs // experts) + 1))
        if phase is ExecutionPhase.GENERATION:
            columns = min(max(fewest, usual), 64)
        else:
            columns = 16 if device.interpreted else min(max(16, usual), 128)
        return cls(False, columns, pairs // columns + min(experts, pairs))


@dataclass(frozen=True, slots=True)
class ExpertLauncher:
    """Runs the experts of all layers on a device."""

    device: Device
    work: ExpertWork

    def route(
        self,
        op: o.Route,
        scores: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        step: Step,
        tokens: int,
        selected: bool,
    ) -> None:
        """Choose; then bring the pairs of every expert together."""
        experts, work = op.scores.width, self.work
        tiling = Tiling.of(tokens, op.used, experts, step.phase, self.device)
        padded = triton.next_power_of_2(experts)
        route_kernel[(tokens,)](
            scores,
            bias,
            out,
            step.inputs.positions,
            work.counts,
            work.ranks,
            experts,
            op.scale,
            op.near,
            EXPERTS=padded,
            SLOTS=triton.next_power_of_2(op.used),
            USED=op.used,
            GATING=code(op.gating),
            NORMALIZE=op.normalize,
            BIAS=bias is not None,
            COUNTED=not tiling.single,
            SELECTED=selected,
            num_warps=1,
            **self.device.order(),
        )
        if tiling.single:
            return
        pairs = tokens * op.used
        group_kernel[(triton.cdiv(pairs, _PAIRS),)](
            out,
            work.counts,
            work.ranks,
            work.pairs,
            work.tiles,
            work.tile_count,
            tiling.most,
            pairs,
            experts,
            EXPERTS=padded,
            USED=op.used,
            COLS=tiling.columns,
            BLOCK=_PAIRS,
            num_warps=4,
            **self.device.order(),
        )

    def run(
        self,
        planes: Planes,
        rows: int,
        experts: int,
        used: int,
        x: torch.Tensor,
        x_stride: int,
        x_scale: float,
        own: bool,
        choice: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        width: int,
        half_scale: float,
        activation: int,
        gated: bool,
        step: Step,
        tokens: int,
    ) -> None:
        """out[pair] = epilogue(weights of its expert @ x); `own`: every pair has its own x."""
        tiling = Tiling.of(tokens, used, experts, step.phase, self.device)
        work, sizes, unroll = self.work, planes.sizes, unroll_of(planes.sizes)
        block = (
            _ONE_ROWS
            if tiling.single
            else _FEW_ROWS
            if tiling.columns <= FEW_COLUMNS
            else _MANY_ROWS
        )
        warps = max(1, block // _ROWS)
        if step.phase is ExecutionPhase.PROMPT:
            block, warps = _MANY_ROWS, 8
        expert_kernel[(triton.cdiv(rows, block), tiling.most)](
            x,
            x_stride,
            1 if own else used,
            planes.columns,
            planes.codes,
            planes.extras,
            planes.scales,
            sizes.chunks,
            rows,
            choice,
            work.pairs,
            work.tiles,
            work.tile_count,
            tiling.most,
            tokens * used,
            planes.factor / x_scale,
            bias,
            out,
            width,
            half_scale,
            BLOCK=block,
            COLS=tiling.columns,
            UNROLL=unroll,
            STAGES=stages_of(sizes, block, tiling.columns, FEW_COLUMNS, self.device),
            EVEN=planes.columns == sizes.chunks * CHUNK,
            SINGLE=tiling.single,
            ASM=self.device.assembly,
            **planes.form.constants(),
            BIAS=bias is not None,
            ACTIVATION=activation,
            GATED=gated,
            HALF=out.dtype == torch.float16,
            num_warps=warps,
            **self.device.order(),
        )

    def mix(
        self,
        choice: torch.Tensor,
        experts: int,
        used: int,
        residual: torch.Tensor | None,
        out: torch.Tensor,
        width: int,
        tokens: int,
        norm_weight: torch.Tensor | None,
        epsilon: float,
        normed: torch.Tensor,
        normed_stride: int,
    ) -> None:
        """out = what the experts found, weighed, + residual; and `normed` its RMS norm."""
        mix_kernel[(tokens,)](
            self.work.parts,
            choice,
            residual,
            out,
            norm_weight,
            epsilon,
            normed,
            normed_stride,
            self.work.counts,
            width,
            experts,
            USED=used,
            RESIDUAL=residual is not None,
            NORM=norm_weight is not None,
            EXPERTS=triton.next_power_of_2(experts),
            BLOCK=triton.next_power_of_2(max(width, normed_stride)),
            num_warps=8,
            **self.device.order(),
        )
