"""How the product of a quantized matrix and some inputs is cut into programs.

The warps of a program share out its rows, or, where a matrix has too few rows to fill the device,
its columns. How columns are shared out depends on the matrix alone, so that sums are added in the
same order for any number of inputs; how many rows a program takes and how much is on its way to it
depends on what fits.
"""

from dataclasses import dataclass

from ingot.backends.gpu.device import Device
from ingot.backends.gpu.planes import CHUNK, ROW_TILE, Planes

_ENOUGH_TILES = 6  # of rows for a multiprocessor
_FEW, _MANY = 8, 64  # inputs


def has_enough_rows(planes: Planes, device: Device) -> bool:
    """Whether the rows of a matrix fill the device."""
    return planes.sizes.rows // ROW_TILE >= _ENOUGH_TILES * device.multiprocessors


@dataclass(frozen=True, slots=True)
class Tiles:
    """What a program takes; see `kernels.products`."""

    block: int  # rows
    columns: int  # inputs
    splits: int  # warps that share columns out; 0: none
    run: int  # chunks that a warp gets together
    unroll: int  # chunks of a step
    stages: int  # steps whose loads are on their way, and the one that computes
    warps: int

    @classmethod
    def of_rows(cls, planes: Planes, block: int, columns: int, *, warps: int) -> "Tiles":
        """Warps share rows out. Many inputs take the registers that longer steps would."""
        run = _run(planes)
        short = columns > _FEW and run == 4 and planes.form.chunk_multiple < 4
        return cls(block, columns, 0, run, 2 if short else run, 3, warps)

    @classmethod
    def of_columns(cls, planes: Planes, columns: int, rows: int, device: Device) -> "Tiles":
        """Warps share columns out; `rows` is how many the whole launch computes."""
        run = _run(planes)
        splits = 1 << min(planes.sizes.chunks // run, 8 if device.assembly else 4).bit_length() - 1
        block = ROW_TILE if columns >= _MANY else 2 * ROW_TILE
        if columns <= _FEW:
            block = ROW_TILE if rows // ROW_TILE >= device.multiprocessors else ROW_TILE // 2
        alone = rows // block <= device.multiprocessors  # on its multiprocessor
        for unroll, stages in ((run, 3), (run, 2), (2, 3), (2, 2), (1, 3), (1, 2)):
            tiles = cls(block, columns, splits, run, unroll, stages, splits)
            room = device.shared_memory if alone else device.shared_memory // 2
            if run % unroll == 0 and tiles.shared_memory(planes) <= room:
                return tiles
        return cls(ROW_TILE // 2, columns, splits, run, 1, 2, splits)

    def shared_memory(self, planes: Planes) -> int:
        """Bytes of the buffers of a program whose warps share columns out."""
        form = planes.form
        weights = 2 * form.bits * CHUNK // 16 + 4 * form.scale_pairs * (form.bits < 16)
        extras = 32 * form.high // 4 if self.unroll % form.chunk_multiple == 0 else 32
        each = self.block * (weights + (extras if form.high else 0)) + 2 * CHUNK * self.columns
        return self.splits * self.unroll * (self.stages - 1) * each

    def constants(self, planes: Planes) -> dict[str, int | bool]:
        """As kernels name them."""
        chunks, turn = planes.sizes.chunks, max(self.splits, 1) * self.run
        return {
            "BLOCK": self.block,
            "COLS": self.columns,
            "SPLITS": self.splits,
            "RUN": self.run,
            "UNROLL": self.unroll,
            "STAGES": self.stages,
            "EVEN": planes.columns == chunks * CHUNK and chunks % turn == 0,
        }


def _run(planes: Planes) -> int:
    """Chunks of a run: all that share extras, at least."""
    most = 2 if planes.form.bits == 16 else 4
    return next(n for n in (4, 3, 2, 1) if n <= most and planes.sizes.chunks % n == 0)
