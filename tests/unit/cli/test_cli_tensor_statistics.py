"""Statistics in pieces, against NumPy over the whole."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.cli.inspect import tensor_statistics
from ingot.cli.inspect.tensor_statistics import TensorStatistics, statistics
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.quant import decode


def of(folder: Path, values: NDArray[np.generic], kind: GgmlType | None = None) -> TensorStatistics:
    writer = GgufWriter(folder / "one.gguf")
    writer.add_tensor("one", values, kind)
    with GgufLoader(writer.write()[0]) as loader:
        return statistics(loader.tensors["one"])


@pytest.mark.parametrize("piece", [32, 1000, 1 << 20])
def test_pieces_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(tensor_statistics, "_PIECE", piece)
    values = np.random.default_rng(0).normal(3, 2, 4000).astype(np.float32)
    values[::7] = 0
    found = of(tmp_path, values)
    double = values.astype(np.float64)
    assert found.values == 4000
    assert found.minimum == double.min()
    assert found.maximum == double.max()
    assert found.mean == pytest.approx(double.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(double.std(), rel=1e-12)
    assert found.zeros == np.count_nonzero(values == 0)
    counts, edges = np.histogram(double, bins=16)
    assert [part.count for part in found.histogram] == counts.tolist()
    assert [part.low for part in found.histogram] == pytest.approx(edges[:-1])


def test_a_quantized_tensor_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_statistics, "_PIECE", 100)
    blocks = np.random.default_rng(1).integers(0, 60, (40, 144), np.uint8)
    values = decode(blocks, GgmlType.Q4_K).astype(np.float64)
    found = of(tmp_path, blocks, GgmlType.Q4_K)
    assert found.values == values.size
    assert (found.minimum, found.maximum) == (values.min(), values.max())
    assert found.mean == pytest.approx(values.mean())


def test_what_is_not_finite_is_counted_apart(tmp_path: Path) -> None:
    values = np.array([1, np.nan, np.inf, -np.inf, 3, 0, np.nan], np.float32)
    found = of(tmp_path, values)
    assert (found.nans, found.infinities, found.zeros) == (2, 2, 1)
    assert (found.minimum, found.maximum) == (0, 3)
    assert found.mean == pytest.approx(4 / 3)
    assert sum(part.count for part in found.histogram) == 3


def test_nothing_finite(tmp_path: Path) -> None:
    found = of(tmp_path, np.full(5, np.nan, np.float32))
    assert found == TensorStatistics(5, None, None, None, None, 0, 5, 0, ())


def test_one_value_only(tmp_path: Path) -> None:
    found = of(tmp_path, np.full(5, 2.5, np.float64))
    assert (found.mean, found.deviation) == (2.5, 0)
    assert [(part.low, part.high, part.count) for part in found.histogram] == [(2.5, 2.5, 5)]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers(tmp_path: Path, dtype: type[np.signedinteger]) -> None:
    limits = np.iinfo(dtype)
    found = of(tmp_path, np.array([limits.min, limits.max, 0, 0], dtype))
    assert (found.minimum, found.maximum, found.zeros) == (limits.min, limits.max, 2)
    assert type(found.minimum) is int
    assert sum(part.count for part in found.histogram) == 4


@pytest.mark.parametrize(
    "values",
    [
        np.array([-1.7e308, 1.7e308]),  # further apart than a double can say
        np.array([0, 5e-324]),  # closer together than a bin can be
        np.array([2**62, 2**62 + 1], np.int64),
    ],
)
def test_extremes_do_not_break_it(tmp_path: Path, values: NDArray[np.generic]) -> None:
    found = of(tmp_path, values)
    assert (found.minimum, found.maximum) == (values.min(), values.max())
    assert sum(part.count for part in found.histogram) in (0, 2)
