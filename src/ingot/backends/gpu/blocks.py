"""What the blocks of a file say, as tensors: codes and the scales of their groups.

One reader a format, from uint8 [rows, bytes of a row] to `Codes`. Codes are counted so that the
middle of their range is 8 (4 bits), 16 (5), 32 (6) or 128 (8); w = (code - middle) * scale + shift.
Layouts are drawn in `ingot.quant`. Runs on any device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from ingot.gguf import GgmlType

_FP4_SHIFT = 14  # a half that holds the bits of an E2M1 float is 2 ** -14 of it


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix taken apart."""

    codes: torch.Tensor  # uint8 [rows, columns]
    scales: torch.Tensor  # float32 [rows, groups]
    shifts: torch.Tensor | None = None  # float32 [rows, groups]


def _blocks(raw: torch.Tensor, type: GgmlType) -> torch.Tensor:
    return raw.reshape(len(raw), -1, type.block_bytes)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The half float at a byte of each block: [rows, blocks, 1]."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16).float()


def _flat(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(len(values), -1)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Low nibbles of all bytes, then the high ones."""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def _pairs(packed: torch.Tensor, fields: int = 4) -> torch.Tensor:
    """Two-bit fields: the lowest of all bytes, then the next."""
    return torch.cat([packed >> 2 * i & 3 for i in range(fields)], dim=-1)


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """Bit 0 of all bytes, then bit 1, ..."""
    return torch.cat([packed >> i & 1 for i in range(8)], dim=-1)


def _fifth(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Bit i of a 32-bit word, as bit 4 of weight i."""
    spread = [blocks[..., at + i // 8] >> i % 8 & 1 for i in range(32)]
    return torch.stack(spread, dim=-1) << 4


def _q4_0(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q4_0)
    return Codes(_flat(_nibbles(blocks[..., 2:])), _flat(_half(blocks, 0)))


def _q4_1(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q4_1)
    s, m = _half(blocks, 0), _half(blocks, 2)
    return Codes(_flat(_nibbles(blocks[..., 4:])), _flat(s), _flat(8 * s + m))


def _q5_0(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q5_0)
    return Codes(_flat(_nibbles(blocks[..., 6:]) | _fifth(blocks, 2)), _flat(_half(blocks, 0)))


def _q5_1(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q5_1)
    s, m = _half(blocks, 0), _half(blocks, 2)
    return Codes(_flat(_nibbles(blocks[..., 8:]) | _fifth(blocks, 4)), _flat(s), _flat(16 * s + m))


def _q8_0(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q8_0)
    return Codes(_flat(blocks[..., 2:] ^ 128), _flat(_half(blocks, 0)))


def _q2_k(raw: torch.Tensor) -> Codes:
    """Two bits, counted from 6 so that 2 is the middle."""
    blocks = _blocks(raw, GgmlType.Q2_K)
    halves = blocks[..., 16:80].reshape(*blocks.shape[:2], 2, 32)
    s = _half(blocks, 80) * (blocks[..., :16] & 15)
    m = _half(blocks, 82) * (blocks[..., :16] >> 4)
    return Codes(_flat(_pairs(halves) + 6), _flat(s), _flat(2 * s - m))


def _q3_k(raw: torch.Tensor) -> Codes:
    """Three bits, counted from 4."""
    blocks = _blocks(raw, GgmlType.Q3_K)
    low = _nibbles(blocks[..., 96:104])
    high = _pairs(blocks[..., 104:108])
    s = _half(blocks, 108) * ((low | high << 4).float() - 32)
    pairs = _pairs(blocks[..., 32:96].reshape(*blocks.shape[:2], 2, 32)).flatten(2)
    return Codes(_flat((pairs | _bits(blocks[..., :32]) << 2) + 4), _flat(s))


def _six_bits(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and minimums of Q4_K and Q5_K: [rows, blocks, 8] each."""
    low, mid, high = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = torch.cat([low & 63, high & 15 | low >> 6 << 4], dim=-1)
    minimums = torch.cat([mid & 63, high >> 4 | mid >> 6 << 4], dim=-1)
    return _half(blocks, 0) * scales, _half(blocks, 2) * minimums


def _q4_k(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q4_K)
    s, m = _six_bits(blocks)
    codes = _nibbles(blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32))
    return Codes(_flat(codes), _flat(s), _flat(8 * s - m))


def _q5_k(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q5_K)
    s, m = _six_bits(blocks)
    low = _nibbles(blocks[..., 48:].reshape(*blocks.shape[:2], 4, 32)).flatten(2)
    codes = low | _bits(blocks[..., 16:48]) << 4
    return Codes(_flat(codes), _flat(s), _flat(16 * s - m))


def _q6_k(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.Q6_K)
    low = _nibbles(blocks[..., :128].reshape(*blocks.shape[:2], 2, 64))
    high = _pairs(blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 32))
    s = _half(blocks, 208) * blocks[..., 192:208].contiguous().view(torch.int8)
    return Codes(_flat(low | high << 4), _flat(s))


def _iq4_nl(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.IQ4_NL)
    return Codes(_flat(_nibbles(blocks[..., 2:])), _flat(_half(blocks, 0)))


def _iq4_xs(raw: torch.Tensor) -> Codes:
    blocks = _blocks(raw, GgmlType.IQ4_XS)
    low = torch.stack([blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4], dim=-1).flatten(2)
    high = torch.stack([blocks[..., 2:4] >> 2 * i & 3 for i in range(4)], dim=-1).flatten(2)
    s = _half(blocks, 0) * ((low | high << 4).float() - 32)
    return Codes(_flat(_nibbles(blocks[..., 8:].reshape(*blocks.shape[:2], 8, 16))), _flat(s))


def _mxfp4(raw: torch.Tensor) -> Codes:
    """The scale counts for the half that holds the code's bits."""
    blocks = _blocks(raw, GgmlType.MXFP4)
    exponent = blocks[..., :1].float() - 127 + _FP4_SHIFT
    return Codes(_flat(_nibbles(blocks[..., 1:])), _flat(torch.exp2(exponent)))


READERS: Mapping[GgmlType, Callable[[torch.Tensor], Codes]] = MappingProxyType(
    {
        GgmlType.Q4_0: _q4_0,
        GgmlType.Q4_1: _q4_1,
        GgmlType.Q5_0: _q5_0,
        GgmlType.Q5_1: _q5_1,
        GgmlType.Q8_0: _q8_0,
        GgmlType.Q2_K: _q2_k,
        GgmlType.Q3_K: _q3_k,
        GgmlType.Q4_K: _q4_k,
        GgmlType.Q5_K: _q5_k,
        GgmlType.Q6_K: _q6_k,
        GgmlType.IQ4_NL: _iq4_nl,
        GgmlType.IQ4_XS: _iq4_xs,
        GgmlType.MXFP4: _mxfp4,
    }
)
