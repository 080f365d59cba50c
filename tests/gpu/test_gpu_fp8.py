"""Rows of the cache as FP8: the same bytes as PyTorch's E4M3, whatever the numbers are."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from ingot.backends.gpu import find_device
from ingot.backends.gpu.kernels.kv_cache import BLOCK_TOKENS, read_tile, write_row
from ops.fp8_rows import fp8_rows

DEVICE = find_device().torch
POSITIONS = BLOCK_TOKENS.value
SIZES = [16, 20, 128]  # one that is padded


@triton.jit
def write_kernel(values, pool, pool_scales, SIZE: tl.constexpr, PADDED: tl.constexpr):
    slot = tl.program_id(0)
    at = tl.arange(0, PADDED)
    value = tl.load(values + slot * SIZE + at, mask=at < SIZE, other=9e9)  # what is no number of it
    write_row(pool, pool_scales, 0, slot, at, value, at < SIZE, SIZE, False)


@triton.jit
def read_kernel(
    pool, pool_scales, out, SIZE: tl.constexpr, PADDED: tl.constexpr, MASKED: tl.constexpr
):
    slot = tl.arange(0, 32)
    at = tl.arange(0, PADDED)
    found = read_tile(
        pool, pool_scales, slot * 0, slot, slot >= 0, at, SIZE, False, SIZE == PADDED, MASKED
    )
    tl.store(out + slot[:, None] * SIZE + at[None, :], found, mask=(at < SIZE)[None, :])


def write(values: torch.Tensor) -> torch.Tensor:
    """A block's keys as bytes."""
    size = values.shape[1]
    pool = torch.zeros(POSITIONS * (size + 2), dtype=torch.uint8, device=DEVICE)
    padded = triton.next_power_of_2(size)
    write_kernel[(POSITIONS,)](values.to(DEVICE), pool, pool.view(torch.float16), size, padded)
    return pool


def read(pool: torch.Tensor, size: int, masked: bool = True) -> torch.Tensor:
    out = torch.zeros((POSITIONS, size), dtype=torch.float16, device=DEVICE)
    padded = triton.next_power_of_2(size)
    read_kernel[(1,)](pool, pool.view(torch.float16), out, size, padded, masked)
    return out.cpu()


def oracle(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [positions, size] and factors, by PyTorch."""
    power = torch.frexp(values.abs().amax(dim=1)).exponent.clamp(-14, 15)
    scaled = values.double() * (2.0 ** (8 - power).double())[:, None]
    codes = scaled.float().clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, (2.0 ** power.double()).half()


def kinds(size: int) -> dict[str, torch.Tensor]:
    """Blocks of numbers [positions, size]."""
    rng = torch.Generator().manual_seed(size)
    usual = torch.randn((POSITIONS, size), generator=rng)
    anywhere = torch.ldexp(usual, torch.randint(-40, 15, (POSITIONS, size), generator=rng))
    codes = torch.randint(0, 0x7F, (POSITIONS, size), generator=rng).to(torch.uint8)
    exact = codes.view(torch.float8_e4m3fn).float()
    above = (codes + 1).clamp(max=0x7E).view(torch.float8_e4m3fn).float()
    ties = (exact + above) / 2
    ties[:, 0] = 255.0  # so that nothing is scaled
    rows = torch.ldexp(usual, torch.arange(-26, POSITIONS - 26)[:, None])  # small to large
    steps = torch.linspace(40000, 66000, POSITIONS)[:, None] * torch.linspace(-1, 1, size)
    return {
        "usual": usual,
        "anywhere": anywhere,
        "exact": exact,
        "ties": ties,
        "rows": rows,
        "saturated": steps,
        "beyond halves": usual * 1e30,
        "none": torch.zeros(POSITIONS, size),
        "least": torch.full((POSITIONS, size), 1e-45),
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", list(kinds(1)))
def test_rows_are_rounded_as_pytorch_does(kind: str, size: int) -> None:
    values = kinds(size)[kind]
    pool = write(values)
    codes, factors = oracle(values)
    stored = pool.cpu()[: POSITIONS * size].view(POSITIONS, size)
    # Zero may have either sign.
    torch.testing.assert_close(
        stored.view(torch.float8_e4m3fn).float(), codes.float(), rtol=0, atol=0
    )
    live = values.abs().amax(dim=1) > 0
    torch.testing.assert_close(
        pool.cpu()[POSITIONS * size :].view(torch.float16)[live], factors[live], rtol=0, atol=0
    )
    expected = (codes.half() / 256) * factors[:, None]
    for masked in (True, False):
        torch.testing.assert_close(read(pool, size, masked), expected, rtol=0, atol=0)
    twin = fp8_rows(values.numpy())
    np.testing.assert_array_equal(twin, expected.numpy())


def test_numbers_keep_four_bits() -> None:
    """Rows of any usual size lose no more than half a step of the mantissa."""
    for power in (-12, -3, 0, 8, 14):
        values = kinds(128)["usual"].clamp(-2, 2) * 2.0**power
        error = (read(write(values), 128).float() - values).abs()
        largest = values.abs().amax(dim=1, keepdim=True)
        least = torch.maximum(largest * 2**-17, torch.tensor(2.0**-24))  # a half has no less
        assert (error <= torch.maximum(values.abs() * 2**-4, least)).all()


def test_every_code_is_read() -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat(2).view(POSITIONS, 16)
    factors = torch.full((POSITIONS,), 256.0, dtype=torch.float16)
    pool = torch.cat([codes.flatten(), factors.view(torch.uint8)]).to(DEVICE)
    expected = codes.view(torch.float8_e4m3fn).float()
    number = expected.isfinite()  # NaN is never written
    assert (~number).sum() == 4
    found = read(pool, 16).float()
    torch.testing.assert_close(found[number], expected[number], rtol=0, atol=0)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite(wrong: float) -> None:
    """They read as NaN, and the others as they are."""
    values = kinds(20)["usual"]
    values[3, 7] = wrong
    found = read(write(values), 20)
    assert found[3].isnan().all()
    found[3] = 0
    assert found.isfinite().all()
