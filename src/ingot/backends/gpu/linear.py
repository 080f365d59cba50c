"""Launch a linear map: which kernel, in which pieces.

A generation unpacks weights in registers, 64 or 128 rows and up to 64 tokens a program, columns
shared out until the device is full. A prompt does the same, without sharing, while its tokens are
few; from LONG_PROMPT on the matrix is unpacked once into scratch memory and multiplied there. Both
add products in the same order, so where one ends and the other begins cannot be seen in the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.kernels.dequantize import dequantize_kernel
from ingot.backends.gpu.kernels.linear import linear_kernel, linear_pair_kernel
from ingot.backends.gpu.kernels.matmul import matmul_kernel
from ingot.backends.gpu.planes import CHUNK, ROW_TILE, Planes, PlaneSizes

MAX_PARTS = 3  # matrices of one input, in one matrix on the device
MAX_COLUMNS = 64  # tokens that a program of a generation takes
LONG_PROMPT = 128  # tokens: from here on unpacking pays (on an H200)
MATMUL_TILE = 128, 256  # rows and tokens
_MAX_SPLITS = 16
_PROGRAMS_PER_MULTIPROCESSOR = 8  # of 64 threads: enough bytes on the way
_FEW_COLUMNS = 8
_ROWS = 32  # of a warp
_FEW_ROWS = 64  # of a program for 2 to 8 tokens
_MANY_ROWS = 128  # and for more: inputs are read less often
_COUNTER_STEP = 4  # counters: kernels take pointers to 16 bytes


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

    @property
    def plain(self) -> bool:
        """Whether sums are only scaled and stored, with a bias at most."""
        return not (self.residual is not None or self.activation or self.gated or self.half)

    def plain_constants(self) -> dict[str, int | bool]:
        """As the kernels name them."""
        return {"PARTS": len(self.firsts), "BIAS": self.bias is not None}

    def constants(self) -> dict[str, int | bool]:
        """As the kernels name them."""
        return self.plain_constants() | {
            "RESIDUAL": self.residual is not None,
            "ACTIVATION": self.activation,
            "GATED": self.gated,
            "HALF": self.half,
        }

    def places(self) -> tuple[int, ...]:
        """As kernels take them: of three parts, 0 where there are fewer."""
        spare = (0,) * (MAX_PARTS - len(self.firsts))
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


def stages_of(sizes: PlaneSizes, block: int, columns: int, few: int, device: Device) -> int:
    """Steps whose loads are on their way, and the one that computes; more for `few` columns."""
    unroll = unroll_of(sizes)
    tuned = {1: 6, 2: 4}.get(unroll, 3) if columns <= few else 3
    weights = (sizes.code_bytes + sizes.extra_bytes + sizes.scale_bytes) // sizes.rows
    step = unroll * (2 * columns * CHUNK + block * weights // sizes.chunks)
    return device.stages(tuned, step)


def matmul_stages(device: Device) -> int:
    """The same for a product of half floats."""
    return device.stages(3, 2 * CHUNK * sum(MATMUL_TILE))


def work_floats(sizes: PlaneSizes, device: Device) -> int:
    """How many shares of sums a generation writes."""
    splits = Cut.of(sizes, device).splits
    return MAX_COLUMNS * sizes.rows * splits if splits > 1 else 0


@dataclass(frozen=True, slots=True)
class LinearMap:
    """A matrix, and what becomes of its sums."""

    planes: Planes
    factor: float
    epilogue: Epilogue

    def even(self) -> bool:
        """Whether its chunks are full."""
        return self.planes.columns == self.planes.sizes.chunks * CHUNK

    def constants(self) -> dict[str, int | bool]:
        """As kernels name them."""
        return self.planes.form.constants() | self.epilogue.constants()


@dataclass(frozen=True, slots=True)
class Rows:
    """Half floats, one row a token."""

    x: torch.Tensor
    stride: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LinearLauncher:
    """Runs linear maps on a device."""

    device: Device
    work: Workspace

    def run(
        self,
        maps: Sequence[LinearMap],
        inputs: Rows,
        phase: ExecutionPhase,
        out: torch.Tensor,
        half_scale: float,
    ) -> None:
        """out = epilogue(factor * matrix @ x) for all tokens and each of some matrices."""
        if phase is ExecutionPhase.GENERATION:
            for first in range(0, inputs.tokens, MAX_COLUMNS):
                self._generation(maps, inputs, first, out, half_scale)
            return
        for map in maps:
            if inputs.tokens < LONG_PROMPT:
                self._short_prompt(map, inputs, out, half_scale)
            else:
                self._unpacked(map, inputs, out, half_scale)

    def _generation(
        self,
        maps: Sequence[LinearMap],
        inputs: Rows,
        first: int,
        out: torch.Tensor,
        half_scale: float,
    ) -> None:
        """Up to MAX_COLUMNS tokens; two matrices in one kernel where their sums are only stored."""
        fewest = 8 if self.device.assembly else 16
        columns = max(fewest, triton.next_power_of_2(min(MAX_COLUMNS, inputs.tokens - first)))
        few = columns <= _FEW_COLUMNS
        block = _ROWS if inputs.tokens == 1 else _FEW_ROWS if few else _MANY_ROWS
        if len(maps) == 2 and all(map.epilogue.plain for map in maps):
            self._pair(maps[0], maps[1], inputs, first, out, block, columns)
            return
        for map in maps:
            cut = Cut.of(map.planes.sizes, self.device)
            stages = stages_of(map.planes.sizes, block, columns, _FEW_COLUMNS, self.device)
            shape = (block, columns, stages, block // _ROWS, 1)
            self._direct(map, inputs, first, out, half_scale, cut, shape)

    def _short_prompt(
        self, map: LinearMap, inputs: Rows, out: torch.Tensor, half_scale: float
    ) -> None:
        cut = Cut.of(map.planes.sizes, self.device)
        whole = replace(cut, splits=1, share=map.planes.sizes.chunks)
        blocks = triton.cdiv(inputs.tokens, MAX_COLUMNS)
        sizes = map.planes.sizes
        stages = stages_of(sizes, _MANY_ROWS, MAX_COLUMNS, _FEW_COLUMNS, self.device)
        shape = (_MANY_ROWS, MAX_COLUMNS, stages, 8, blocks)
        self._direct(map, inputs, 0, out, half_scale, whole, shape)

    def _direct(
        self,
        map: LinearMap,
        inputs: Rows,
        first: int,
        out: torch.Tensor,
        half_scale: float,
        cut: Cut,
        shape: tuple[int, int, int, int, int],  # rows, columns, stages, warps, blocks of columns
    ) -> None:
        planes, sizes, epilogue = map.planes, map.planes.sizes, map.epilogue
        block, columns, stages, warps, column_blocks = shape
        linear_kernel[(triton.cdiv(sizes.rows, block), cut.splits, column_blocks)](
            inputs.x,
            inputs.stride,
            planes.columns,
            planes.codes,
            planes.extras,
            planes.scales,
            sizes.chunks,
            cut.share,
            first,
            inputs.tokens,
            sizes.rows,
            self.work.sums,
            self.work.counters,
            map.factor * planes.factor,
            epilogue.bias,
            epilogue.residual,
            out,
            half_scale,
            *epilogue.places(),
            BLOCK=block,
            COLS=columns,
            UNROLL=cut.unroll,
            STAGES=stages,
            SPLITS=cut.splits,
            EVEN=map.even(),
            ASM=self.device.assembly,
            **map.constants(),
            num_warps=warps,
            **self.device.order(),
        )

    def _pair(
        self,
        a: LinearMap,
        b: LinearMap,
        inputs: Rows,
        first: int,
        out: torch.Tensor,
        block: int,
        columns: int,
    ) -> None:
        arguments: list[object] = []
        constants: dict[str, int | bool] = {}
        programs = []
        sums = counters = 0
        for name, map in (("A", a), ("B", b)):
            planes, sizes = map.planes, map.planes.sizes
            cut = Cut.of(sizes, self.device)
            blocks = triton.cdiv(sizes.rows, block)
            programs.append(blocks * cut.splits)
            arguments += [
                planes.codes,
                planes.extras,
                planes.scales,
                sizes.chunks,
                cut.share,
                sizes.rows,
                self.work.sums[sums:],
                self.work.counters[counters:],
                map.factor * planes.factor,
                map.epilogue.bias,
                *map.epilogue.places(),
            ]
            stages = stages_of(sizes, block, columns, _FEW_COLUMNS, self.device)
            own = {"UNROLL": cut.unroll, "STAGES": stages, "SPLITS": cut.splits}
            own |= planes.form.constants() | map.epilogue.plain_constants()
            constants |= {f"{key}_{name}": value for key, value in own.items()}
            sums += work_floats(sizes, self.device)
            counters += -(-blocks // _COUNTER_STEP) * _COUNTER_STEP
        linear_pair_kernel[(sum(programs), 1)](
            inputs.x,
            inputs.stride,
            a.planes.columns,
            first,
            inputs.tokens,
            out,
            programs[0],
            *arguments,
            BLOCK=block,
            COLS=columns,
            EVEN=a.even() and b.even(),
            ASM=self.device.assembly,
            **constants,
            num_warps=block // _ROWS,
            **self.device.order(),
        )

    def _unpacked(self, map: LinearMap, inputs: Rows, out: torch.Tensor, half_scale: float) -> None:
        planes, sizes, epilogue = map.planes, map.planes.sizes, map.epilogue
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
        block, columns = (32, 32) if self.device.interpreted else MATMUL_TILE
        grid = (triton.cdiv(sizes.rows, block) * triton.cdiv(inputs.tokens, columns),)
        matmul_kernel[grid](
            inputs.x,
            inputs.stride,
            planes.columns,
            self.work.scratch,
            sizes.chunks * CHUNK,
            inputs.tokens,
            sizes.rows,
            map.factor * planes.factor,
            epilogue.bias,
            epilogue.residual,
            out,
            half_scale,
            *epilogue.places(),
            BLOCK=block,
            COLS=columns,
            DEPTH=CHUNK,
            STAGES=matmul_stages(self.device),
            EVEN=map.even(),
            **epilogue.constants(),
            num_warps=8,
        )
