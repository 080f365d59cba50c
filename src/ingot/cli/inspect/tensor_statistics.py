"""Statistics of one tensor, computed piece by piece so that a huge tensor does not fill memory.

A lazy tensor comes in; numbers and a histogram go out. `quant/` dequantizes quantized and short
floats; integers and doubles are used unchanged, without rounding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.gguf import GgmlType, LazyTensor
from ingot.quant import decode

_PIECE = 1 << 20  # values dequantized at a time
_BINS = 16
_EXACT: Final = MappingProxyType(
    {
        GgmlType.F64: "<f8",
        GgmlType.I8: "<i1",
        GgmlType.I16: "<i2",
        GgmlType.I32: "<i4",
        GgmlType.I64: "<i8",
    }
)


@dataclass(frozen=True, slots=True)
class Bin:
    """The number of values from `low` up to `high`, without `high` except in the last bin."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """Statistics of the finite values (None if there are none); others are only counted."""

    values: int
    minimum: int | float | None
    maximum: int | float | None
    mean: float | None
    deviation: float | None  # of the population
    zeros: int
    nans: int
    infinities: int
    histogram: tuple[Bin, ...]  # empty without finite values, or if they span more than a float


def statistics(tensor: LazyTensor) -> TensorStatistics:
    """Read the tensor twice: first for the numbers, then for the histogram."""
    count = zeros = nans = infinities = 0
    mean = squares = 0.0  # of the pieces so far: mean, and sum of squared distances from it
    minimum: int | float | None = None
    maximum: int | float | None = None
    with np.errstate(over="ignore", invalid="ignore"):
        for piece in _pieces(tensor):
            finite = piece[np.isfinite(piece)]
            nans += int(np.isnan(piece).sum())
            zeros += piece.size - int(np.count_nonzero(piece))
            if not finite.size:
                continue
            low, high = finite.min().item(), finite.max().item()
            minimum = low if minimum is None else min(minimum, low)
            maximum = high if maximum is None else max(maximum, high)
            # Combine the means and squared distances of two samples (Chan et al.).
            double = finite.astype(np.float64)
            piece_mean = float(double.mean())
            squares += float(np.square(double - piece_mean).sum())
            squares += (piece_mean - mean) ** 2 * count * finite.size / (count + finite.size)
            mean += (piece_mean - mean) * finite.size / (count + finite.size)
            count += finite.size
    total = prod(tensor.shape)
    infinities = total - count - nans
    return TensorStatistics(
        values=total,
        minimum=minimum,
        maximum=maximum,
        mean=mean if count else None,
        deviation=sqrt(squares / count) if count else None,
        zeros=zeros,
        nans=nans,
        infinities=infinities,
        histogram=_histogram(tensor, minimum, maximum),
    )


def _pieces(tensor: LazyTensor) -> Iterator[NDArray[Any]]:
    step = max(1, _PIECE // tensor.type.block_size) * tensor.type.block_bytes
    for start in range(0, tensor.nbytes, step):
        data = tensor.data[start : start + step]
        exact = _EXACT.get(tensor.type)
        yield decode(data, tensor.type) if exact is None else data.view(exact)


def _histogram(
    tensor: LazyTensor, minimum: int | float | None, maximum: int | float | None
) -> tuple[Bin, ...]:
    if minimum is None or maximum is None or not np.isfinite(float(maximum) - float(minimum)):
        return ()
    low, span = float(minimum), float(maximum) - float(minimum)
    bins = _BINS if span else 1
    counts = np.zeros(bins, np.int64)
    for piece in _pieces(tensor):
        values = piece[np.isfinite(piece)].astype(np.float64)
        places = (values - low) / (span or 1.0) * bins  # 0 to bins; the largest joins the last bin
        counts += np.bincount(np.minimum(places.astype(np.int64), bins - 1), minlength=bins)
    edges = [low + span * number / bins for number in range(bins + 1)]
    return tuple(
        Bin(first, last, int(count))
        for first, last, count in zip(edges, edges[1:], counts, strict=False)
    )
