"""How a matrix lies in device memory, and how it gets there from the blocks of a file.

Rows come in tiles of 32, columns in chunks of 64. Of every tile and chunk there are

    codes   16-bit words [32 rows, 16]: field i (4 bits) of word j is column 16 * i + j. Eight-bit
            codes take two such tiles, bytes for fields; half floats take four, one word each
    extras  the bits of a code above the fourth: 1 or 2 for each column, in the same arrangement;
            4 or 2 chunks share a tile
    scales  rows of 32 pairs of halves: s and c of a group of 16 or 32 columns, or, without c, the
            s of two neighbouring groups

    w = (code - 8, 16 or 32) * s + c,  or  w = value[code] * s,  or the half float itself

so that neighbouring threads read neighbouring bytes and unpack without moving them. Each matrix is
multiplied by a power of two that brings its scales into the middle of a half's range; `factor`
takes it back. Codes below 4 bits (Q2_K, Q3_K) are widened to 4; a type without a form here is
decoded to half floats. Everything runs as tensor operations on the device the bytes are on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ingot.backends.gpu.blocks import READERS, Codes
from ingot.gguf import GgmlType

ROW_TILE = 32
CHUNK = 64
_SLICE = 16
_TOP = 2  # the power of two at or under the largest scale of a matrix
_TOP_FP4 = 14  # the same where the code's bits are 2 ** -14 of its value
_TOP_HALF = 10  # the same for the largest weight of halves
_PIECE = 1 << 24  # weights unpacked at a time
_PACKED_BYTES = 32  # that a weight takes meanwhile: 25 at most (Q6_K), and what lies between


@dataclass(frozen=True, slots=True)
class PlaneForm:
    """The numbers a kernel is compiled for."""

    bits: int  # 4, 8 or 16 of the codes
    high: int = 0  # bits in the extras
    fine: bool = False  # groups of 16, not of 32
    minimum: bool = False  # pairs s, c
    table: int = 0  # 1: IQ4's values, 2: E2M1 floats

    @property
    def chunk_multiple(self) -> int:
        """Chunks that share a tile of extras."""
        return 4 // self.high if self.high else 1

    @property
    def scale_pairs(self) -> int:
        """Pairs of halves in the scales of a chunk."""
        return (2 if self.fine else 1) * (2 if self.minimum else 1)

    def constants(self) -> dict[str, int | bool]:
        """As the kernels name them."""
        return {
            "BITS": self.bits,
            "HIGH": self.high,
            "FINE": self.fine,
            "MIN": self.minimum,
            "TABLE": self.table,
        }


HALF_BITS = 16
_HALVES = PlaneForm(HALF_BITS)
_FORMS = {
    GgmlType.Q4_0: PlaneForm(4),
    GgmlType.Q4_1: PlaneForm(4, minimum=True),
    GgmlType.Q5_0: PlaneForm(4, high=1),
    GgmlType.Q5_1: PlaneForm(4, high=1, minimum=True),
    GgmlType.Q8_0: PlaneForm(8),
    GgmlType.Q2_K: PlaneForm(4, fine=True, minimum=True),
    GgmlType.Q3_K: PlaneForm(4, fine=True),
    GgmlType.Q4_K: PlaneForm(4, minimum=True),
    GgmlType.Q5_K: PlaneForm(4, high=1, minimum=True),
    GgmlType.Q6_K: PlaneForm(4, high=2, fine=True),
    GgmlType.IQ4_NL: PlaneForm(4, table=1),
    GgmlType.IQ4_XS: PlaneForm(4, table=1),
    GgmlType.MXFP4: PlaneForm(4, table=2),
}


def form_of(type: GgmlType) -> PlaneForm:
    """The form a type takes on the device."""
    return _FORMS.get(type, _HALVES)


@dataclass(frozen=True, slots=True)
class PlaneSizes:
    """Shape and bytes of a matrix on the device."""

    form: PlaneForm
    rows: int  # with those that fill the last tile
    chunks: int

    @classmethod
    def of(cls, form: PlaneForm, rows: int, columns: int) -> "PlaneSizes":
        """Of a matrix of that many rows and columns."""
        multiple = form.chunk_multiple
        chunks = -(-columns // (CHUNK * multiple)) * multiple
        return cls(form, -(-rows // ROW_TILE) * ROW_TILE, chunks)

    @property
    def code_bytes(self) -> int:
        """Of the codes."""
        return self.rows * self.chunks * CHUNK * self.form.bits // 8

    @property
    def extra_bytes(self) -> int:
        """Of the extras."""
        return self.rows * self.chunks * CHUNK * self.form.high // 8

    @property
    def scale_bytes(self) -> int:
        """Of the scales."""
        if self.form.bits == 16:
            return 0
        return self.rows * self.chunks * self.form.scale_pairs * 4


@dataclass(frozen=True, slots=True)
class Planes:
    """A matrix on the device."""

    sizes: PlaneSizes
    columns: int
    codes: torch.Tensor
    extras: torch.Tensor
    scales: torch.Tensor
    factor: float

    @property
    def form(self) -> PlaneForm:
        """Its form."""
        return self.sizes.form


Place = Callable[[int], torch.Tensor]  # bytes -> that much device memory


def packing_bytes(weights: int) -> int:
    """What packing a matrix of so many weights takes, beside the matrix and where it goes."""
    return _PACKED_BYTES * min(weights, _PIECE)


def pack(raw: torch.Tensor, type: GgmlType, columns: int, place: Place) -> Planes:
    """Planes of a matrix; `raw` holds the file's blocks [rows, bytes of a row], or float32."""
    form = form_of(type)
    sizes = PlaneSizes.of(form, len(raw), columns)
    codes = place(sizes.code_bytes).view(torch.int16)
    extras = place(sizes.extra_bytes).view(torch.int16)
    scales = place(sizes.scale_bytes).view(torch.int32)
    read = READERS.get(type)
    step = max(ROW_TILE, _PIECE // columns // ROW_TILE * ROW_TILE)
    starts = range(0, sizes.rows, step)
    if read is None:
        largest = max(float(raw[at : at + step].float().abs().amax()) for at in starts)
        gain = _gain(largest, _TOP_HALF)
    else:
        largest = max(float(read(raw[at : at + step]).scales.abs().amax()) for at in starts)
        gain = _gain(largest, _TOP_FP4 if form.table == 2 else _TOP)
    for start in starts:
        rows = min(step, sizes.rows - start)
        piece = raw[start : start + rows]
        part = slice(start // ROW_TILE, (start + rows) // ROW_TILE)
        if read is None:
            halves = _padded(piece.float() * gain, rows, sizes.chunks * CHUNK).half()
            tiled = halves.reshape(-1, ROW_TILE, sizes.chunks, 4, _SLICE).permute(0, 2, 3, 1, 4)
            codes.view(torch.float16).view(sizes.rows // ROW_TILE, *tiled.shape[1:])[part] = tiled
        else:
            _pack_codes(read(piece), sizes, rows, part, gain, codes, extras, scales)
    unsigned = codes.view(torch.uint16)
    return Planes(
        sizes,
        columns,
        unsigned,
        extras.view(torch.uint16),
        scales.view(torch.uint32),
        1.0 / gain,
    )


def _gain(largest: float, top: int) -> float:
    """The power of two that brings a number into [2 ** top, 2 ** (top + 1))."""
    if not 0 < largest < math.inf:
        return 1.0
    return float(2.0 ** (top - math.floor(math.log2(largest))))


def _padded(values: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Zeros to the right and below."""
    return torch.nn.functional.pad(
        values, (0, columns - values.shape[1], 0, rows - values.shape[0])
    )


def _pack_codes(
    found: Codes,
    sizes: PlaneSizes,
    rows: int,
    part: slice,
    gain: float,
    codes: torch.Tensor,
    extras: torch.Tensor,
    scales: torch.Tensor,
) -> None:
    """Put a piece of rows in its place."""
    form, chunks, tiles = sizes.form, sizes.chunks, sizes.rows // ROW_TILE
    code = _padded(found.codes, rows, chunks * CHUNK).int()
    if form.bits == 8:
        field = code.reshape(-1, ROW_TILE, chunks, 2, 2, _SLICE)
        words = field[..., 0, :] | field[..., 1, :] << 8  # [tiles, 32, chunks, 2, 16]
        codes.view(tiles, chunks, 2, ROW_TILE, _SLICE)[part] = _words(words.permute(0, 2, 3, 1, 4))
    else:
        field = code.reshape(-1, ROW_TILE, chunks, 4, _SLICE)
        low = field & 15
        words = low[..., 0, :] | low[..., 1, :] << 4 | low[..., 2, :] << 8 | low[..., 3, :] << 12
        codes.view(tiles, chunks, ROW_TILE, _SLICE)[part] = _words(words.permute(0, 2, 1, 3))
        if form.high:
            share, high = form.chunk_multiple, field >> 4
            shifts = torch.arange(4, device=code.device).reshape(4, 1) * form.high
            nibbles = (high << shifts).sum(-2).reshape(-1, ROW_TILE, chunks // share, share, _SLICE)
            places = torch.arange(share, device=code.device).reshape(share, 1) * (4 * form.high)
            words = (nibbles << places).sum(-2).permute(0, 2, 1, 3)
            extras.view(tiles, chunks // share, ROW_TILE, _SLICE)[part] = _words(words)
    groups = chunks * (4 if form.fine else 2)
    halves = _padded(found.scales * gain, rows, groups).half()
    if form.minimum:
        assert found.shifts is not None
        halves = torch.stack([halves, _padded(found.shifts * gain, rows, groups).half()], dim=-1)
    pairs = halves.reshape(-1, ROW_TILE, chunks, form.scale_pairs, 2).permute(0, 2, 3, 1, 4)
    words = pairs.contiguous().view(torch.int32)[..., 0]
    scales.view(tiles, chunks, form.scale_pairs, ROW_TILE)[part] = words


def _words(words: torch.Tensor) -> torch.Tensor:
    """The low 16 bits of integers, whatever their sign."""
    return torch.where(words >= 1 << 15, words - (1 << 16), words).to(torch.int16)
