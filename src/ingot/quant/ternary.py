"""Ternary formats: 256 weights that are -d, 0 or d.

The encoders take the largest magnitude for d and round the rest.
"""

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Bytes, Floats
from ingot.quant.bits import (
    fields,
    half_at,
    half_bytes,
    inverse,
    join,
    library,
    round_half_away,
    to_integers,
)
from ingot.quant.block import BlockFormat, Coding, Parts

_CODING = Coding(bits=2, group=256, zero=1)
_POWERS = (1, 3, 9, 27, 81)


def _trits(packed: Bytes, per_byte: int) -> Bytes:
    """Unpack base-3 fractions: [n, bytes] -> [n, per_byte * bytes] of 0, 1, 2.

    A byte is v / 256 with v / 256 = 0.t0 t1 t2 t3 t4 in base 3, rounded up. Multiplying
    by a power of 3 and dropping what leaves the byte moves a digit to the front; a
    last times 3 carries it out.
    """
    xp = library(packed)
    moved = xp.stack([packed * power for power in _POWERS[:per_byte]], 1)
    trits: Bytes = xp.asarray(xp.asarray(moved, dtype=xp.int32) * 3 >> 8, dtype=xp.uint8)
    return trits.reshape(len(packed), per_byte * packed.shape[1])


def _pack_trits(trits: Bytes, per_byte: int) -> Bytes:
    """Pack what `_trits` unpacks: [n, per_byte * bytes] -> [n, bytes]."""
    digits = trits.reshape(len(trits), per_byte, trits.shape[1] // per_byte).astype(np.uint32)
    powers = np.array(_POWERS[::-1][:per_byte], np.uint32)[:, None]
    number: NDArray[np.uint32] = (digits * powers).sum(axis=1)
    return ((number * 256 + 242) // 243).astype(np.uint8)


def _scale_and_trits(weights: Floats) -> tuple[Floats, Bytes]:
    scale = np.abs(weights).max(axis=-1, keepdims=True)
    trits = to_integers(round_half_away(weights * inverse(scale))) + 1
    return scale, trits.astype(np.uint8)


class TQ1_0(BlockFormat):
    """1.6875 bits per weight, five weights to a byte: w = d * (t - 1).

    ```
    0..31   qs  weights 0..159:   digit k of byte i is weight 32 * k + i
    32..47      weights 160..239: digit k of byte i is weight 160 + 16 * k + i
    48..51  qh  weights 240..255: digit k of byte i is weight 240 + 4 * k + i, k < 4
    52..53  d   f16
    ```
    """

    coding = _CODING

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        parts = [
            _trits(blocks[:, :32], 5),
            _trits(blocks[:, 32:48], 5),
            _trits(blocks[:, 48:52], 4),
        ]
        return Parts(join(parts), half_at(blocks, 52))

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale, trits = _scale_and_trits(weights)
        parts = [
            _pack_trits(trits[:, :160], 5),
            _pack_trits(trits[:, 160:240], 5),
            _pack_trits(trits[:, 240:], 4),
        ]
        return np.concatenate([*parts, half_bytes(scale)], axis=-1)


class TQ2_0(BlockFormat):
    """2.0625 bits per weight: w = d * (q - 1).

    ```
    0..63   qs  2-bit fields; 32 bytes hold 128 weights, field f of byte i being weight
                32 * f + i
    64..65  d   f16
    ```
    """

    coding = _CODING

    @classmethod
    def split(cls, blocks: Bytes) -> Parts:
        return Parts(fields(blocks[:, :64].reshape(-1, 2, 32), 2), half_at(blocks, 64))

    @classmethod
    def _encode(cls, weights: Floats) -> Bytes:
        scale, codes = _scale_and_trits(weights)
        shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
        packed = np.bitwise_or.reduce(codes.reshape(-1, 2, 4, 32) << shifts, axis=2)
        return np.concatenate([packed.reshape(-1, 64), half_bytes(scale)], axis=-1)
