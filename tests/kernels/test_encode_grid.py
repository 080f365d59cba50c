"""The encoders of IQ1, IQ2 and IQ3 beside a search through all points and many scales.

In that search every group has a float as its scale, and every sign is free; the formats have a few
bits of scale, and some of them store seven signs of eight. So it cannot be reached, but the
encoders must come near it.
"""

import numpy as np
import pytest

from ingot import _native
from ingot.gguf import GgmlType
from ingot.quant import decode, encode

# The grid, the weights of a group, and how much larger the squared error may be.
SIGNED = {
    "IQ2_XXS": ("IQ2_XXS", 32, 1.16),
    "IQ2_XS": ("IQ2_XS", 16, 1.28),
    "IQ2_S": ("IQ2_S", 16, 1.12),
    "IQ3_XXS": ("IQ3_XXS", 32, 1.55),
    "IQ3_S": ("IQ3_S", 32, 1.08),
}
SHIFTED = {"IQ1_S": (32, 1.05), "IQ1_M": (8, 1.25)}
BLOCKS = 1


def best_error(weights: np.ndarray, counts: np.ndarray, points: np.ndarray) -> float:
    """The least error of groups [groups, runs, weights], whatever the scale of each."""
    largest = np.abs(weights).max(axis=(1, 2)) / np.abs(points).max()
    best = np.full(len(weights), np.inf)
    for stretch in np.geomspace(0.2, 1.5, 40):
        scaled = (largest * stretch)[:, None, None, None] * points
        errors = ((weights[:, :, None, :] - scaled) ** 2 * counts[:, :, None, :]).sum(axis=-1)
        best = np.minimum(best, errors.min(axis=-1).sum(axis=-1))
    return float(best.sum())


def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    weights = rng.standard_t(6, (1, 256 * BLOCKS)).astype("f4")
    return weights, rng.lognormal(0, 1, 256 * BLOCKS).astype("f4")


def found_error(name: str, weights: np.ndarray, counts: np.ndarray) -> float:
    blocks = encode(weights, GgmlType[name], importance=counts)
    difference = weights - decode(blocks, GgmlType[name], weights.shape)
    return float((difference.astype("f8") ** 2 * counts).sum())


@pytest.mark.parametrize("name", SIGNED)
def test_magnitudes_are_near_the_best(name: str) -> None:
    grid, group, allowed = SIGNED[name]
    points = _native.grid(grid).astype("f4")
    weights, counts = sample()
    shape = (-1, group // points.shape[1], points.shape[1])
    least = best_error(np.abs(weights).reshape(shape), counts.reshape(shape), points)
    assert least < found_error(name, weights, counts) < allowed * least


@pytest.mark.parametrize("name", SHIFTED)
def test_shifted_points_are_near_the_best(name: str) -> None:
    group, allowed = SHIFTED[name]
    points = _native.grid("IQ1_S").astype("f4")
    weights, counts = sample()
    shape = (-1, group // 8, 8)
    groups = weights.reshape(shape), counts.reshape(shape)
    least = sum(
        min(best_error(w[None], c[None], points + 1), best_error(w[None], c[None], points - 1))
        for w, c in zip(*groups, strict=True)
    )
    assert 0.9 * least < found_error(name, weights, counts) < allowed * least


@pytest.mark.parametrize("name", [*SIGNED, *SHIFTED])
def test_what_counts_more_is_nearer(name: str) -> None:
    weights, counts = sample()
    even = np.ones_like(counts)
    with_counts = encode(weights, GgmlType[name], importance=counts)
    without = encode(weights, GgmlType[name])
    np.testing.assert_array_equal(without, encode(weights, GgmlType[name], importance=even))

    def error(blocks: np.ndarray, counted: np.ndarray) -> float:
        difference = weights - decode(blocks, GgmlType[name], weights.shape)
        return float((difference.astype("f8") ** 2 * counted).sum())

    assert error(with_counts, counts) < 0.95 * error(without, counts)
    assert error(without, even) < 0.95 * error(with_counts, even)
