"""Rows of a head as bytes: E4M3 numbers (a sign, 4 bits of exponent, 3 of mantissa) and one factor.

The factor is a power of two that brings the row's largest number to 128..256. Without it, numbers
above 448 would be cut off and those below 2 ** -6 would lose bits, and keys and values of some
models are that large or small. A power of two costs no bits and no division, so every device
stores the same bytes. A row that is not finite reads as NaN, as it would with half floats.

All of it is integer arithmetic and exact products: not every device has conversions of its own, and
some have an E4M3 with other codes.
"""

import triton
import triton.language as tl

LEAST_FACTOR = tl.constexpr(-14)  # as a power of two: what half floats hold exactly
MOST_FACTOR = tl.constexpr(15)
LARGEST = tl.constexpr(0x7E)  # the code of 448; the next one is NaN
HALF_NAN = tl.constexpr(0x7E00)


@triton.jit
def row_factor(value):
    """The power of two, 2 ** 8 times what codes are multiplied by; and its bits as a half."""
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    exponent = tl.max(bits, axis=0) >> 23  # of the largest; 255: not finite
    power = tl.minimum(tl.maximum(exponent - 126, LEAST_FACTOR), MOST_FACTOR)
    return power, tl.where(exponent == 255, HALF_NAN, (power + 15) << 10)


@triton.jit
def to_codes(value, power):
    """The nearest codes of value / (factor / 256), ties to even, none beyond the largest."""
    bits = (value * ((135 - power) << 23).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    # Below 2 ** -6 codes are multiples of 2 ** -9: so is what is left of a number beside 2 ** 14.
    beside = size.to(tl.float32, bitcast=True) + 16384.0
    small = beside.to(tl.int32, bitcast=True) - 0x46800000
    code = tl.minimum(tl.where(size < 0x3C800000, small, normal), LARGEST)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def to_halves(code):
    """2 ** -8 of what codes stand for: their bits are those of a half with a short exponent."""
    signed = code.to(tl.int8, bitcast=True).to(tl.int16)
    return ((signed << 7) & -16385).to(tl.float16, bitcast=True)
