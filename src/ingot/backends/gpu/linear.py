"""Launch a linear map: which kernel, in which pieces.

A generation unpacks weights in registers, 64 or 128 rows and up to 64 tokens a program, columns
shared out until the device is full. A prompt does the same, without sharing, while its tokens are
few; from LONG_PROMPT on the matrix is unpacked once into scratch memory and multiplied there. Both
add products in the same order, so where one ends and the other begins cannot be seen in the result.
"""

from dataclasses import dataclass, replace

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.dequantize import dequantize_kernel
from ingot.backends.gpu.kernels.linear import linear_kernel
from ingot.backends.gpu.kernels.matmul import matmul_kernel
from ingot.backends.gpu.planes import CHUNK, ROW_TILE, Planes, PlaneSizes

MAX_COLUMNS = 64  # tokens that a program of a generation takes
LONG_PROMPT = 128  # tokens: from here on unpacking pays (on an H200)
_MAX_SPLITS = 16
_PROGRAMS_PER_MULTIPROCESSOR = 8  # of 64 threads: enough bytes on the way
_ROWS = 32  # of a warp
LATE = True
_FETCHED = 16  # chunks that a program asks for before it may begin
_FEW_ROWS = 64  # of a program for 2 to 8 tokens
_MANY_ROWS = 128  # and for more: inputs are read less often
_MAX_PARTS = 3


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows the sums; see `kernels.epilogue`."""

    firsts: tuple[int, ...]  # rows of the matrix at which its parts begin
    widths: tuple[int, ...]  # their rows
    bases: tuple[int, ...]  # where their values begin in the output
    bias: torch.Tensor | None
    residual: torch.Tensor | None
    activation: int
    gated: bool
    half: bool

    def constants(self) -> dict[str, int | bool]:
        """As the kernels name them."""
        return {
            "PARTS": len(self.firsts),
            "BIAS": self.bias is not None,
            "RESIDUAL": self.residual is not None,
            "ACTIVATION": self.activation,
            "GATED": self.gated,
            "HALF": self.half,
        }

    def places(self) -> tuple[int, ...]:
        """As kernels take them: of three parts, 0 where there are fewer."""
        spare = (0,) * (_MAX_PARTS - len(self.firsts))
        return (
            *(self.firsts + spare)[1:],
            *(self.widths + spare),
            *(self.bases + spare),
        )


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that launches share, one after the other."""

    sums: torch.Tensor  # float32: shares of sums
    counters: torch.Tensor  # int32, all 0 between launches
    scratch: torch.Tensor  # halves: one unpacked matrix


@dataclass(frozen=True, slots=True)
class Cut:
    """How the columns of a matrix are cut, whatever the number of tokens."""

    splits: int
    share: int  # chunks of a split
    unroll: int  # chunks of a step

    @classmethod
    def of(cls, sizes: PlaneSizes, device: Device) -> "Cut":
        """As many shares as fill the device, two steps each at least."""
        chunks = sizes.chunks
        unroll = unroll_of(sizes)
        blocks = sizes.rows // _ROWS
        wanted = device.multiprocessors * _PROGRAMS_PER_MULTIPROCESSOR // blocks
        splits = max(1, min(wanted, chunks // unroll // 2, _MAX_SPLITS))
        share = -(-(chunks // unroll) // splits) * unroll
        return cls(-(-chunks // share), share, unroll)


def unroll_of(sizes: PlaneSizes) -> int:
    """Chunks of a step: all that share extras, or two, or three.

    Longer steps are slower: their instructions come late (a token of a 1.5B model took 1177 us
    in steps of 2 and 1273 us in steps of 4, on an H200).
    """
    chunks, fewest = sizes.chunks, sizes.form.chunk_multiple
    return max(fewest, next(count for count in (2, 3, 1) if chunks % count == 0))


def stages_of(unroll: int) -> int:
    """Steps whose loads are on their way, and the one that computes."""
    return {1: 6, 2: 4}.get(unroll, 3)


def work_floats(sizes: PlaneSizes, device: Device) -> int:
    """How many shares of sums a generation writes."""
    splits = Cut.of(sizes, device).splits
    return MAX_COLUMNS * sizes.rows * splits if splits > 1 else 0


@dataclass(frozen=True, slots=True)
class LinearLauncher:
    """Runs linear maps on a device."""

    device: Device
    work: Workspace

    def run(
        self,
        planes: Planes,
        x: torch.Tensor,
        x_stride: int,
        tokens: int,
        phase: ExecutionPhase,
        factor: float,
        out: torch.Tensor,
        half_scale: float,
        epilogue: Epilogue,
    ) -> None:
        """out = epilogue(factor * planes @ x) for all tokens."""
        tail = (factor * planes.factor, epilogue.bias, epilogue.residual, out, half_scale)
        if phase is ExecutionPhase.GENERATION:
            cut = Cut.of(planes.sizes, self.device)
            for first in range(0, tokens, MAX_COLUMNS):
                count = min(MAX_COLUMNS, tokens - first)
                fewest = 8 if self.device.assembly else 16
                columns = max(fewest, triton.next_power_of_2(count))
                block = _ROWS if tokens == 1 else _FEW_ROWS if columns <= 8 else _MANY_ROWS
                self._direct(
                    planes,
                    x,
                    x_stride,
                    first,
                    tokens,
                    tail,
                    epilogue,
                    block,
                    columns,
                    cut,
                    block // _ROWS,
                    1,
                )
        elif tokens < LONG_PROMPT:
            blocks = triton.cdiv(tokens, MAX_COLUMNS)
            self._direct(
                planes,
                x,
                x_stride,
                0,
                tokens,
                tail,
                epilogue,
                _MANY_ROWS,
                MAX_COLUMNS,
                replace(Cut.of(planes.sizes, self.device), splits=1, share=planes.sizes.chunks),
                8,
                blocks,
            )
        else:
            self._unpacked(planes, x, x_stride, tokens, tail, epilogue)

    def _direct(
        self,
        planes: Planes,
        x: torch.Tensor,
        x_stride: int,
        first: int,
        tokens: int,
        tail: tuple[float, torch.Tensor | None, torch.Tensor | None, torch.Tensor, float],
        epilogue: Epilogue,
        block: int,
        columns: int,
        cut: Cut,
        warps: int,
        column_blocks: int,
    ) -> None:
        sizes = planes.sizes
        grid = (triton.cdiv(sizes.rows, block), cut.splits, column_blocks)
        linear_kernel[grid](
            x,
            x_stride,
            planes.columns,
            planes.codes,
            planes.extras,
            planes.scales,
            sizes.chunks,
            cut.share,
            first,
            tokens,
            sizes.rows,
            self.work.sums,
            self.work.counters,
            *tail,
            *epilogue.places(),
            BLOCK=block,
            COLS=columns,
            UNROLL=cut.unroll,
            STAGES=stages_of(cut.unroll) if columns <= 8 else 3,
            SPLITS=cut.splits,
            EVEN=planes.columns % CHUNK == 0 and planes.columns == sizes.chunks * CHUNK,
            ASM=self.device.assembly,
            **planes.form.constants(),
            **epilogue.constants(),
            num_warps=warps,
            FETCHED=_FETCHED,
            LATE=LATE,
            **self.device.order(),
        )

    def _unpacked(
        self,
        planes: Planes,
        x: torch.Tensor,
        x_stride: int,
        tokens: int,
        tail: tuple[float, torch.Tensor | None, torch.Tensor | None, torch.Tensor, float],
        epilogue: Epilogue,
    ) -> None:
        sizes = planes.sizes
        dequantize_kernel[(sizes.chunks, sizes.rows // ROW_TILE)](
            planes.codes,
            planes.extras,
            planes.scales,
            sizes.chunks,
            self.work.scratch,
            ASM=self.device.assembly,
            **planes.form.constants(),
            num_warps=2,
        )
        block, columns, depth = (32, 32, 64) if self.device.interpreted else (128, 256, 64)
        grid = (triton.cdiv(sizes.rows, block) * triton.cdiv(tokens, columns),)
        matmul_kernel[grid](
            x,
            x_stride,
            planes.columns,
            self.work.scratch,
            sizes.chunks * CHUNK,
            tokens,
            sizes.rows,
            *tail,
            *epilogue.places(),
            BLOCK=block,
            COLS=columns,
            DEPTH=depth,
            STAGES=3,
            EVEN=planes.columns == sizes.chunks * CHUNK,
            **epilogue.constants(),
            num_warps=8,
        )
