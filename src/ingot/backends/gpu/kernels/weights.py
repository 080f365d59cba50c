"""Weights in registers: a chunk of the planes of a matrix as half floats.

A matrix is stored in row tiles of 32 and chunks of 64 columns (see `ingot.backends.gpu.planes`).
For 16-bit word j of a row, the chunk's four slices are its fields: column 16 * i + j of the chunk
is field i. So a slice is a mask and a shift away from the words, and a product over the chunk is
four products over slices, each with 16 neighbouring inputs. On NVIDIA the fields are taken two at a
time by inline assembly; elsewhere, and in the interpreter, by the same steps in Triton.

w = (code - zero) * s + c, with s and c of a group of 16 or 32; or a level times s.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

ROWS = tl.constexpr(32)  # of a row tile
CHUNK = tl.constexpr(64)  # columns
SLICE = tl.constexpr(16)
TILE_WORDS = tl.constexpr(512)  # words: a row tile of one chunk, four bits a weight

# What codes stand for, if not for themselves.
LEVELS_ANY = tl.constexpr(1)  # any 16 signed bytes
LEVELS_FP4 = tl.constexpr(2)  # E2M1 floats
LEVELS_ODD = tl.constexpr(3)  # 2 * code - 15


class Weights(NamedTuple):
    """A matrix in planes; FORM beside it (`PlaneForm`) is what a kernel is compiled for."""

    codes: torch.Tensor
    extras: torch.Tensor
    scales: torch.Tensor
    chunks: int
    rows: int  # of the matrix, or of one of its experts


def _fields_asm(high: int, minimum: bool) -> str:
    """Four slices from a pair of words: 1024 + code by setting an exponent, then w."""
    words = 2 if high else 1
    code, extra = "$4", "$5"
    scale = 4 + words
    shift = scale + 4
    zero = {0: 0x6408, 1: 0x6410, 2: 0x6420}[high]  # 1024 + 8, 16, 32
    lines = [".reg .b32 t, u, z;", f"mov.b32 z, 0x{zero:04x}{zero:04x};"]
    for i in range(4):
        source = code
        if i:
            lines.append(f"shr.u32 t, {code}, {4 * i};")
            source = "t"
        lines.append(f"lop3.b32 t, {source}, 0x000f000f, 0x64006400, 0xEA;")
        if high:
            move, mask = high * i - 4, ((1 << high) - 1) << 4
            op = f"shr.u32 u, {extra}, {move};" if move > 0 else f"shl.b32 u, {extra}, {-move};"
            lines.append(op)
            lines.append(f"lop3.b32 t, u, 0x{mask:04x}{mask:04x}, t, 0xEA;")
        lines.append("sub.rn.f16x2 t, t, z;")
        last = f"fma.rn.f16x2 ${i}, t, ${scale + i}, ${shift + i};"
        lines.append(last if minimum else f"mul.rn.f16x2 ${i}, t, ${scale + i};")
    return "{\n" + "\n".join(lines) + "\n}"


def _bytes_asm() -> str:
    """Two slices of biased bytes."""
    return """{
    .reg .b32 t, z;
    mov.b32 z, 0x64806480;
    lop3.b32 t, $2, 0x00ff00ff, 0x64006400, 0xEA;
    sub.rn.f16x2 t, t, z;
    mul.rn.f16x2 $0, t, $3;
    shr.u32 t, $2, 8;
    lop3.b32 t, t, 0x00ff00ff, 0x64006400, 0xEA;
    sub.rn.f16x2 t, t, z;
    mul.rn.f16x2 $1, t, $3;
    }"""


def _fp4_asm() -> str:
    """E2M1 as the sign, exponent and top mantissa bits of a half: 2 ** -14 of its value."""
    lines = [".reg .b32 t, u;"]
    for i in range(4):
        lines.append(f"shl.b32 t, $4, {12 - 4 * i};")
        lines.append("and.b32 t, t, 0x80008000;")
        move = 9 - 4 * i
        lines.append(f"shl.b32 u, $4, {move};" if move > 0 else f"shr.u32 u, $4, {-move};")
        lines.append("lop3.b32 t, u, 0x0e000e00, t, 0xEA;")
        lines.append(f"mul.rn.f16x2 ${i}, t, ${5 + i};")
    return "{\n" + "\n".join(lines) + "\n}"


def _share_asm(share: int) -> str:
    """Words of extras shifted for each of the chunks that share them."""
    moves = [f"shr.u32 ${i}, ${share}, {16 // share * i};" for i in range(share)]
    return "{\n" + "\n".join(moves) + "\n}"


def _odd_asm() -> str:
    """Twice the codes, as numbers are made of codes alone, less 15."""
    lines = [".reg .b32 t, z;", "mov.b32 z, 0x640f640f;"]
    for i in range(4):
        move = 4 * i - 1
        lines += [
            f"shr.u32 t, $4, {move};" if i else "shl.b32 t, $4, 1;",
            "lop3.b32 t, t, 0x001e001e, 0x64006400, 0xEA;",
            "sub.rn.f16x2 t, t, z;",
            f"mul.rn.f16x2 ${i}, t, ${5 + i};",
        ]
    return "{\n" + "\n".join(lines) + "\n}"


@triton.constexpr_function
def _levels_asm(form):
    """Biased bytes of the levels by byte permutation, the four fields of a word at a time."""
    word = [
        f"0x{sum(form.levels[at + n] + 128 << 8 * n for n in range(4)):08x}" for at in (0, 4, 8, 12)
    ]
    lines = [".reg .b32 s, m, l, h, a, b, t, z;", "mov.b32 z, 0x64806480;"]
    for source, target in (("$4", "a"), ("s", "b")):
        if target == "b":
            lines.append("shr.u32 s, $4, 16;")
        lines += [
            f"and.b32 m, {source}, 0x7777;",
            f"prmt.b32 l, {word[0]}, {word[1]}, m;",
            f"prmt.b32 h, {word[2]}, {word[3]}, m;",
            f"and.b32 m, {source}, 0x8888;",
            "shr.u32 m, m, 1;",
            "or.b32 m, m, 0x3210;",
            f"prmt.b32 {target}, l, h, m;",
        ]
    for i in range(4):
        lines += [
            f"prmt.b32 t, a, b, 0x0{4 + i}0{i};",
            "lop3.b32 t, t, 0x00ff00ff, 0x64006400, 0xEA;",
            "sub.rn.f16x2 t, t, z;",
            f"mul.rn.f16x2 ${i}, t, ${5 + i};",
        ]
    return "{\n" + "\n".join(lines) + "\n}"


@triton.constexpr_function
def _level_bytes(form, first):
    """Eight of the levels, biased, in one number."""
    return sum(form.levels[first + at] + 128 << 8 * at for at in range(8))


_NIBBLE = tl.constexpr(_fields_asm(0, minimum=False))
_NIBBLE_MIN = tl.constexpr(_fields_asm(0, minimum=True))
_FIVE = tl.constexpr(_fields_asm(1, minimum=False))
_FIVE_MIN = tl.constexpr(_fields_asm(1, minimum=True))
_SIX = tl.constexpr(_fields_asm(2, minimum=False))
_BYTES = tl.constexpr(_bytes_asm())
_FP4 = tl.constexpr(_fp4_asm())
_ODD = tl.constexpr(_odd_asm())
_ONE_IN = tl.constexpr("=r,=r,=r,=r,r,r,r,r,r")
_ONE_IN_MIN = tl.constexpr("=r,=r,=r,=r,r,r,r,r,r,r,r,r,r")
_TWO_IN = tl.constexpr("=r,=r,=r,=r,r,r,r,r,r,r")
_TWO_IN_MIN = tl.constexpr("=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r")
_TWO_CHUNKS = tl.constexpr(_share_asm(2))
_FOUR_CHUNKS = tl.constexpr(_share_asm(4))
_TWO_OUT = tl.constexpr("=r,=r,r")
_FOUR_OUT = tl.constexpr("=r,=r,=r,=r,r")
_TWO_SLICES = tl.constexpr("=r,=r,r,r")


@triton.jit
def _half(bits):
    """The half float of 16 bits."""
    return bits.to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def _level(code, FORM: tl.constexpr):
    """The level that a code names: a biased byte of the half of the levels that it is in."""
    LOW: tl.constexpr = _level_bytes(FORM, 0)
    HIGH: tl.constexpr = _level_bytes(FORM, 8)
    half = tl.where(code < 8, LOW, HIGH)
    return ((half >> ((code & 7) * 8).to(tl.uint64)) & 255).to(tl.int32) - 128


@triton.jit
def _slice(
    word,
    extra,
    s,
    c,
    PART: tl.constexpr,
    FORM: tl.constexpr,
):
    """Slice PART of words of fields, step by step."""
    code = (word.to(tl.int32) >> (4 * PART)) & 15
    if FORM.level_kind == LEVELS_FP4:
        return _half(((code & 8) << 12) | ((code & 7) << 9)) * s
    if FORM.level_kind == LEVELS_ODD:
        return (2 * code - 15).to(tl.float16) * s
    if FORM.level_kind == LEVELS_ANY:
        return _level(code, FORM).to(tl.float16) * s
    if FORM.high > 0:
        code |= ((extra.to(tl.int32) >> (FORM.high * PART)) & ((1 << FORM.high) - 1)) << 4
    number = (code - (8 << FORM.high)).to(tl.float16)
    if FORM.minimum:
        return (number.to(tl.float32) * s.to(tl.float32) + c.to(tl.float32)).to(tl.float16)
    else:
        return number * s


@triton.jit
def _pair(pointer):
    """Two halves of every row, as columns."""
    pair = tl.load(pointer)
    return _half(pair & 0xFFFF)[:, None], _half(pair >> 16)[:, None]


@triton.jit
def two_extras(words, ASM: tl.constexpr):
    """The extras (2 bits a code) of two neighbouring chunks.

    In one operation, so that the words go straight to the registers that unpack them.
    """
    word = tl.load(words)
    if ASM:
        types: tl.constexpr = (tl.uint16, tl.uint16)
        return tl.inline_asm_elementwise(_TWO_CHUNKS, _TWO_OUT, [word], types, True, 2)
    else:
        return word, word >> 8


@triton.jit
def four_extras(words, ASM: tl.constexpr):
    """The extras (1 bit a code) of four neighbouring chunks."""
    word = tl.load(words)
    if ASM:
        types: tl.constexpr = (tl.uint16, tl.uint16, tl.uint16, tl.uint16)
        return tl.inline_asm_elementwise(_FOUR_CHUNKS, _FOUR_OUT, [word], types, True, 2)
    else:
        return word, word >> 4, word >> 8, word >> 12


@triton.jit
def one_extra(words, chunk, FORM: tl.constexpr):
    """The extras of one chunk; `words` points to those of chunk 0."""
    move = (chunk % FORM.chunk_multiple * (4 * FORM.high)).to(tl.uint16)
    return tl.load(words + chunk // FORM.chunk_multiple * TILE_WORDS) >> move


@triton.jit
def chunk_slices(
    codes,
    extra,
    scales,
    chunk,
    FORM: tl.constexpr,
    ASM: tl.constexpr,
):
    """The four slices [rows, 16] of a chunk.

    `codes` points to the words of chunk 0 and `scales` to its first group; FORM.high is the
    number of bits of a code that are in `extra`.
    """
    if FORM.bits == 16:
        words = codes + chunk * (4 * TILE_WORDS)
        w0 = _half(tl.load(words))
        w1 = _half(tl.load(words + TILE_WORDS))
        w2 = _half(tl.load(words + 2 * TILE_WORDS))
        w3 = _half(tl.load(words + 3 * TILE_WORDS))
        return w0, w1, w2, w3
    pairs = scales + chunk * (FORM.scale_pairs * ROWS)
    if FORM.minimum:
        s0, c0 = _pair(pairs)
        if FORM.fine:
            s1, c1 = _pair(pairs + ROWS)
            s2, c2 = _pair(pairs + 2 * ROWS)
            s3, c3 = _pair(pairs + 3 * ROWS)
        else:
            s1, c1 = s0, c0
            s2, c2 = _pair(pairs + ROWS)
            s3, c3 = s2, c2
    else:
        if FORM.fine:
            s0, s1 = _pair(pairs)
            s2, s3 = _pair(pairs + ROWS)
        else:
            s0, s2 = _pair(pairs)
            s1, s3 = s0, s2
        c0, c1, c2, c3 = s0, s1, s2, s3
    halves: tl.constexpr = (tl.float16, tl.float16, tl.float16, tl.float16)
    if FORM.bits == 8:
        low = tl.load(codes + chunk * (2 * TILE_WORDS))
        upper = tl.load(codes + chunk * (2 * TILE_WORDS) + TILE_WORDS)
        if ASM:
            two: tl.constexpr = (tl.float16, tl.float16)
            w0, w1 = tl.inline_asm_elementwise(_BYTES, _TWO_SLICES, [low, s0], two, True, 2)
            w2, w3 = tl.inline_asm_elementwise(_BYTES, _TWO_SLICES, [upper, s2], two, True, 2)
        else:
            w0 = ((low & 255).to(tl.int32) - 128).to(tl.float16) * s0
            w1 = ((low >> 8).to(tl.int32) - 128).to(tl.float16) * s1
            w2 = ((upper & 255).to(tl.int32) - 128).to(tl.float16) * s2
            w3 = ((upper >> 8).to(tl.int32) - 128).to(tl.float16) * s3
        return w0, w1, w2, w3
    word = tl.load(codes + chunk * TILE_WORDS)
    if ASM:
        if FORM.level_kind == LEVELS_FP4:
            return tl.inline_asm_elementwise(_FP4, _ONE_IN, [word, s0, s1, s2, s3], halves, True, 2)
        elif FORM.level_kind == LEVELS_ODD:
            return tl.inline_asm_elementwise(_ODD, _ONE_IN, [word, s0, s1, s2, s3], halves, True, 2)
        elif FORM.level_kind == LEVELS_ANY:
            return tl.inline_asm_elementwise(
                _levels_asm(FORM), _ONE_IN, [word, s0, s1, s2, s3], halves, True, 2
            )
        elif FORM.high == 0 and FORM.minimum:
            return tl.inline_asm_elementwise(
                _NIBBLE_MIN, _ONE_IN_MIN, [word, s0, s1, s2, s3, c0, c1, c2, c3], halves, True, 2
            )
        elif FORM.high == 0:
            return tl.inline_asm_elementwise(
                _NIBBLE, _ONE_IN, [word, s0, s1, s2, s3], halves, True, 2
            )
        elif FORM.high == 1 and FORM.minimum:
            return tl.inline_asm_elementwise(
                _FIVE_MIN,
                _TWO_IN_MIN,
                [word, extra, s0, s1, s2, s3, c0, c1, c2, c3],
                halves,
                True,
                2,
            )
        elif FORM.high == 1:
            return tl.inline_asm_elementwise(
                _FIVE, _TWO_IN, [word, extra, s0, s1, s2, s3], halves, True, 2
            )
        else:
            return tl.inline_asm_elementwise(
                _SIX, _TWO_IN, [word, extra, s0, s1, s2, s3], halves, True, 2
            )
    w0 = _slice(word, extra, s0, c0, 0, FORM)
    w1 = _slice(word, extra, s1, c1, 1, FORM)
    w2 = _slice(word, extra, s2, c2, 2, FORM)
    w3 = _slice(word, extra, s3, c3, 3, FORM)
    return w0, w1, w2, w3
