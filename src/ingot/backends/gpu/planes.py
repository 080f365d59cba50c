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
takes it back. What the blocks of a file mean is said by the classes in `ingot.quant`; `form_of`
follows from how a format codes its weights. Codes below 4 bits are widened to 4; a format that has
no form here is decoded to half floats. Everything runs as tensor operations on the device the bytes
are on.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, cast

import torch

from ingot.arrays import Bytes
from ingot.backends.gpu.kernels.weights import LEVELS_ANY, LEVELS_FP4, LEVELS_ODD, Weights
from ingot.gguf import GgmlType
from ingot.quant import fp4
from ingot.quant.block import BlockFormat, Coding
from ingot.quant.registry import format_of

ROW_TILE = 32
CHUNK = 64
_SLICE = 16
_TOP = 2  # the power of two at or under the largest scale of a matrix
_TOP_FP4 = 14  # the same for E2M1 floats, see _FP4_SCALE
_TOP_HALF = 10  # the same for the largest weight of halves
_PIECE = 1 << 22  # weights unpacked at a time
_PACKED_BYTES = 20  # that a weight takes meanwhile: 16 at most, and what lies between


@dataclass(frozen=True, slots=True)
class PlaneForm:
    """The numbers a kernel is compiled for."""

    bits: int  # 4, 8 or 16 of the codes
    high: int = 0  # bits in the extras
    fine: bool = False  # groups of 16, not of 32
    minimum: bool = False  # pairs s, c
    levels: tuple[int, ...] | None = None  # that codes name

    @property
    def level_kind(self) -> int:
        """How kernels make the levels; 0: codes stand for themselves."""
        return _LEVEL_KINDS.get(self.levels, LEVELS_ANY.value) if self.levels else 0

    @property
    def code_tiles(self) -> int:
        """Tiles of words that the codes of a chunk take."""
        return self.bits // 4

    @property
    def chunk_multiple(self) -> int:
        """Chunks that share a tile of extras."""
        return 4 // self.high if self.high else 1

    @property
    def scale_pairs(self) -> int:
        """Pairs of halves in the scales of a chunk."""
        return (2 if self.fine else 1) * (2 if self.minimum else 1)


HALF_BITS = 16
_HALVES = PlaneForm(HALF_BITS)
# Levels that kernels compute; others are looked up.
_LEVEL_KINDS: Mapping[tuple[int, ...], int] = MappingProxyType(
    {fp4.LEVELS: LEVELS_FP4.value, tuple(range(-15, 16, 2)): LEVELS_ODD.value}
)
# A half with the bits of an E2M1 float is 2 ** -14 of it, and the levels are twice the floats.
_FP4_SCALE = 2.0**15


def form_of(type: GgmlType) -> PlaneForm:
    """Find the form of a format: half floats if the kernels cannot read its codes."""
    coding = format_of(type).coding
    if coding is None or (coding.group != 16 and coding.group % 32):
        return _HALVES
    fine, shifted = coding.group == 16, _is_shifted(coding)
    if coding.levels is not None:
        fits = len(coding.levels) == 16 and all(-128 <= level < 128 for level in coding.levels)
        return PlaneForm(4, fine=fine, levels=coding.levels) if fits else _HALVES
    if coding.bits <= 5:
        return PlaneForm(4, high=max(0, coding.bits - 4), fine=fine, minimum=shifted)
    if coding.bits == 6 and not shifted:
        return PlaneForm(4, high=2, fine=fine)
    if coding.bits == 8 and not shifted and not fine:
        return PlaneForm(8)
    return _HALVES


def _middle(coding: Coding) -> int:
    """The code that the middle of the form's range stands for.

    It is the middle of the range of codes. Codes that are widened fit around their zero, too, and
    then a group needs no shift.
    """
    return coding.zero if coding.bits < 4 and not coding.has_minimum else 1 << coding.bits - 1


def _is_shifted(coding: Coding) -> bool:
    """Whether weights are more than (code - middle) * s."""
    return coding.has_minimum or (coding.levels is None and coding.zero != _middle(coding))


class Codes(NamedTuple):
    """Rows of a matrix, taken apart: w = (code - middle) * scale + shift."""

    codes: torch.Tensor  # uint8 [rows, columns]; the middle is 8 (4 bits), 16 (5), 32 (6), 128 (8)
    scales: torch.Tensor  # float32 [rows, groups of 16 or 32]
    shifts: torch.Tensor | None  # the same


def read_codes(raw: torch.Tensor, format: type[BlockFormat]) -> Codes:
    """Take blocks [rows, bytes of a row] apart as their form asks for it."""
    coding, form = format.coding, form_of(format.type)
    assert coding is not None
    parts = format.split(cast(Bytes, raw.reshape(-1, format.type.block_bytes)))
    codes = cast(torch.Tensor, parts.codes).reshape(len(raw), -1)
    scales = cast(torch.Tensor, parts.scales).reshape(len(raw), -1)
    shifts = None
    if coding.levels is None:
        middle = _middle(coding)
        codes = codes + ((1 << form.bits + form.high - 1) - middle)
        if form.minimum:
            shifts = (middle - coding.zero) * scales
            if parts.minimums is not None:
                shifts = shifts + cast(torch.Tensor, parts.minimums).reshape(len(raw), -1)
    elif form.level_kind == LEVELS_FP4.value:
        scales = scales * _FP4_SCALE
    repeat = coding.group // 32
    if repeat > 1:
        scales = scales.repeat_interleave(repeat, 1)
        shifts = None if shifts is None else shifts.repeat_interleave(repeat, 1)
    return Codes(codes, scales, shifts)


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

    @property
    def row_bytes(self) -> int:
        """Of all that belongs to a row."""
        return (self.code_bytes + self.extra_bytes + self.scale_bytes) // self.rows


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

    @property
    def weights(self) -> Weights:
        """As kernels take it."""
        sizes = self.sizes
        return Weights(self.codes, self.extras, self.scales, sizes.chunks, sizes.rows)

    @property
    def even(self) -> bool:
        """Whether its chunks are full."""
        return self.columns == self.sizes.chunks * CHUNK


Place = Callable[[int], torch.Tensor]  # bytes -> that much device memory


def packing_bytes(weights: int) -> int:
    """What packing a matrix of so many weights takes, beside the matrix and where it goes."""
    return _PACKED_BYTES * min(weights, _PIECE)


def pack(raw: torch.Tensor, type: GgmlType, columns: int, place: Place) -> Planes:
    """Planes of a matrix; `raw` holds the file's blocks [rows, bytes of a row], or float32."""
    form, format = form_of(type), format_of(type)
    sizes = PlaneSizes.of(form, len(raw), columns)
    codes = place(sizes.code_bytes).view(torch.int16)
    extras = place(sizes.extra_bytes).view(torch.int16)
    scales = place(sizes.scale_bytes).view(torch.int32)
    step = max(ROW_TILE, _PIECE // columns // ROW_TILE * ROW_TILE)
    starts = range(0, sizes.rows, step)
    pieces = (raw[at : at + step] for at in starts)
    if form.bits == HALF_BITS:
        gain = _gain(_largest(piece.float() for piece in pieces), _TOP_HALF)
    else:
        scales_of = (read_codes(piece, format).scales for piece in pieces)
        top = _TOP_FP4 if form.level_kind == LEVELS_FP4.value else _TOP
        gain = _gain(_largest(scales_of), top)
    for start in starts:
        rows = min(step, sizes.rows - start)
        piece = raw[start : start + rows]
        part = slice(start // ROW_TILE, (start + rows) // ROW_TILE)
        if form.bits == HALF_BITS:
            halves = _padded(piece.float() * gain, rows, sizes.chunks * CHUNK).half()
            tiled = halves.reshape(-1, ROW_TILE, sizes.chunks, 4, _SLICE).permute(0, 2, 3, 1, 4)
            codes.view(torch.float16).view(sizes.rows // ROW_TILE, *tiled.shape[1:])[part] = tiled
        else:
            _pack_codes(read_codes(piece, format), sizes, rows, part, gain, codes, extras, scales)
    unsigned = codes.view(torch.uint16)
    return Planes(
        sizes,
        columns,
        unsigned,
        extras.view(torch.uint16),
        scales.view(torch.uint32),
        1.0 / gain,
    )


def _largest(pieces: Iterable[torch.Tensor]) -> float:
    """The largest magnitude of all; the device is waited for once."""
    return float(torch.stack([piece.abs().amax() for piece in pieces]).amax())


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
        words = _side_by_side(field & 15, 4)
        codes.view(tiles, chunks, ROW_TILE, _SLICE)[part] = _words(words.permute(0, 2, 1, 3))
        if form.high:
            share, high = form.chunk_multiple, field >> 4
            nibbles = _side_by_side(high, form.high)
            shared = nibbles.reshape(-1, ROW_TILE, chunks // share, share, _SLICE)
            words = _side_by_side(shared, 4 * form.high).permute(0, 2, 1, 3)
            extras.view(tiles, chunks // share, ROW_TILE, _SLICE)[part] = _words(words)
    groups = chunks * (4 if form.fine else 2)
    halves = _padded(found.scales * gain, rows, groups).half()
    if form.minimum:
        assert found.shifts is not None
        halves = torch.stack([halves, _padded(found.shifts * gain, rows, groups).half()], dim=-1)
    pairs = halves.reshape(-1, ROW_TILE, chunks, form.scale_pairs, 2).permute(0, 2, 3, 1, 4)
    words = pairs.contiguous().view(torch.int32)[..., 0]
    scales.view(tiles, chunks, form.scale_pairs, ROW_TILE)[part] = words


def _side_by_side(parts: torch.Tensor, bits: int) -> torch.Tensor:
    """Numbers of so many bits [..., parts, n] as one [..., n], the first part lowest."""
    count = parts.shape[-2]
    places = torch.arange(count, dtype=parts.dtype, device=parts.device).reshape(count, 1) * bits
    return (parts << places).sum(-2, dtype=parts.dtype)


def _words(words: torch.Tensor) -> torch.Tensor:
    """The low 16 bits of integers, whatever their sign."""
    return torch.where(words >= 1 << 15, words - (1 << 16), words).to(torch.int16)
