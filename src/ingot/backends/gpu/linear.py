"""Launch a linear map: which kernel, in which pieces.

A generation unpacks weights in registers, up to 64 tokens a program. Where a matrix has too few
rows to fill the device, the warps of a program share its columns out. A prompt does the same,
without sharing, while its tokens are few; from LONG_PROMPT on the matrix is unpacked once into
scratch memory and multiplied there. Both add products in the same order, so where one ends and the
other begins cannot be seen in the result.
"""

from dataclasses import dataclass

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.dequantize import dequantize_kernel
from ingot.backends.gpu.kernels.linear import linear_kernel
from ingot.backends.gpu.kernels.matmul import matmul_kernel
from ingot.backends.gpu.planes import CHUNK, ROW_TILE, Planes
from ingot.backends.gpu.tiles import Tiles, has_enough_rows

MAX_COLUMNS = 64  # tokens that a program of a generation takes
LONG_PROMPT = 128  # tokens: from here on unpacking pays (on an H200)
_MANY_ROWS = 128  # of a program for more than 8 tokens: inputs are read less often
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
class LinearLauncher:
    """Runs linear maps on a device."""

    device: Device
    scratch: torch.Tensor  # halves: one unpacked matrix

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
            fewest = 8 if self.device.assembly else 16
            columns = min(max(fewest, triton.next_power_of_2(tokens)), MAX_COLUMNS)
            if has_enough_rows(planes, self.device):
                block = ROW_TILE if columns <= 8 else _MANY_ROWS
                tiles = Tiles.of_rows(planes, block, columns, warps=block // ROW_TILE)
            else:
                tiles = Tiles.of_columns(planes, columns, planes.sizes.rows, self.device)
            self._direct(planes, x, x_stride, tokens, tail, epilogue, tiles)
        elif tokens < LONG_PROMPT:
            tiles = Tiles.of_rows(planes, _MANY_ROWS, MAX_COLUMNS, warps=8)
            self._direct(planes, x, x_stride, tokens, tail, epilogue, tiles)
        else:
            self._unpacked(planes, x, x_stride, tokens, tail, epilogue)

    def _direct(
        self,
        planes: Planes,
        x: torch.Tensor,
        x_stride: int,
        tokens: int,
        tail: tuple[float, torch.Tensor | None, torch.Tensor | None, torch.Tensor, float],
        epilogue: Epilogue,
        tiles: Tiles,
    ) -> None:
        sizes = planes.sizes
        grid = (triton.cdiv(sizes.rows, tiles.block), triton.cdiv(tokens, tiles.columns))
        linear_kernel[grid](
            x,
            x_stride,
            planes.columns,
            planes.codes,
            planes.extras,
            planes.scales,
            sizes.chunks,
            tokens,
            sizes.rows,
            *tail,
            *epilogue.places(),
            ASM=self.device.assembly,
            **tiles.constants(planes),
            **planes.form.constants(),
            **epilogue.constants(),
            num_warps=tiles.warps,
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
            self.scratch,
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
            self.scratch,
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
