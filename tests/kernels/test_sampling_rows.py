"""The native passes over rows of logits, on every instruction set, against NumPy twins.

The twins make the same steps in the same order, so sums, draws, exp and log are equal to the
last bit.
"""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot import _native

pytestmark = pytest.mark.usefixtures("isa")

BLOCK, LANES = 256, 16
SIZES = (1, 2, 15, 16, 17, 255, 256, 257, 1000, 4096, 32003)
each_isa = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def random_row(size: int, seed: int, banned: float = 0.1) -> NDArray[np.float32]:
    """Logits with ties, and with some tokens banned, but never all."""
    random = np.random.default_rng(seed)
    row = np.round(random.normal(scale=8, size=size), 1).astype(np.float32)
    row[random.random(size) < banned] = -np.inf
    row[random.integers(size)] = 5.0
    return row


def exp_twin(x: NDArray[np.float64]) -> NDArray[np.float64]:
    clamped = np.where(x > -708.0, x, -708.0)
    shifted = clamped * float.fromhex("0x1.71547652b82fep+0") + float.fromhex("0x1.8p52")
    whole = shifted - float.fromhex("0x1.8p52")
    r = (clamped - whole * float.fromhex("0x1.62e42feep-1")) - whole * float.fromhex(
        "0x1.a39ef35793c76p-33"
    )
    total = np.full_like(r, 1.0 / math.factorial(13))
    for n in range(12, -1, -1):
        total = total * r + 1.0 / math.factorial(n)
    powers = total.view(np.int64) + (shifted.view(np.int64) << 52)
    return np.where(x > -708.0, powers.view(np.float64), 0.0)


def log_twin(x: NDArray[np.float64]) -> NDArray[np.float64]:
    bits = x.view(np.int64)
    n = (bits - 0x3FE6A09E667F3BCD) >> 52
    m = (bits - (n << 52)).view(np.float64)
    f = (m - 1.0) / (m + 1.0)
    square = f * f
    total = np.full_like(f, 1.0 / 21.0)
    for odd in range(19, 1, -2):
        total = total * square + 1.0 / odd
    tail = 2.0 * f * (square * total)
    low = tail + n * float.fromhex("0x1.a39ef35793c76p-33")
    return n * float.fromhex("0x1.62e42feep-1") + (2.0 * f + low)


def lane_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each block: in 16 running sums, which are then added in pairs."""
    blocks = -(-len(values) // BLOCK)
    padded = np.zeros(blocks * BLOCK)
    padded[: len(values)] = values
    lanes = np.zeros((blocks, LANES))
    for step in np.moveaxis(padded.reshape(blocks, BLOCK // LANES, LANES), 1, 0):
        lanes = lanes + step
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def total_twin(values: NDArray[np.float64]) -> float:
    return float(np.cumsum(lane_sums(values))[-1])


def draw_twin(row: NDArray[np.float32], uniform: float) -> int:
    """The first token whose running sum passes `uniform`."""
    powers = exp_twin(row.astype(np.float64) - row.max())
    running = np.cumsum(powers)
    counting = np.flatnonzero(powers)
    passing = counting[running[counting] > uniform * running[-1]]
    return int(passing[0] if len(passing) else counting[-1])


def top_of(row: NDArray[np.float32], count: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    counts = np.array([count], np.int32)
    ids, logits = np.full((1, count), -1, np.int32), np.zeros((1, count), np.float32)
    found = np.zeros(1, np.int32)
    _native.select_top(row[np.newaxis], counts, ids, logits, found, 1)
    return ids[0, : found[0]], logits[0, : found[0]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 40, 300, 40000])
def test_the_largest_values_are_found_in_order(size: int, count: int) -> None:
    row = random_row(size, seed=size + count)
    ids, logits = top_of(row, count)
    order = np.lexsort((np.arange(size), -row))
    expected = order[row[order] > -np.inf][:count]
    assert ids.tolist() == expected.tolist()
    assert logits.tolist() == row[expected].tolist()


def test_equal_values_come_by_token_id() -> None:
    ids, _ = top_of(np.zeros(5000, np.float32), 40)
    assert ids.tolist() == list(range(40))


def test_many_rows_are_read_at_once() -> None:
    rows = np.stack([random_row(3000, seed) for seed in range(40)])
    rows[3, 7] = np.nan
    rows[4] = -np.inf
    counts = np.arange(40, dtype=np.int32)
    ids, logits = np.zeros((40, 40), np.int32), np.zeros((40, 40), np.float32)
    found = np.zeros(40, np.int32)
    _native.select_top(rows, counts, ids, logits, found, 4)
    assert found[3] == -1
    assert found[4] == 0
    for i in [0, 1, 2, *range(5, 40)]:
        assert ids[i, : found[i]].tolist() == (top_of(rows[i], i)[0].tolist() if i else [])


def test_arrays_that_do_not_fit_are_refused() -> None:
    rows, found = np.zeros((2, 8), np.float32), np.zeros(2, np.int32)
    ids, logits = np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="count"):
        _native.select_top(rows, np.array([1, 4], np.int32), ids, logits, found, 1)
    with pytest.raises(ValueError, match="one row each"):
        _native.select_top(rows, np.array([1], np.int32), ids, logits, found, 1)
    with pytest.raises(ValueError, match="two numbers"):
        _native.sum_rows(rows, np.zeros((2, 3)), 1)
    with pytest.raises(ValueError, match="as many lengths"):
        _native.repeat_lengths(np.zeros(4, np.int32), np.zeros(3, np.int32))


@each_isa
@given(size=st.sampled_from(SIZES), seed=st.integers(0, 99), distance=st.floats(0, 40))
def test_values_near_the_largest(size: int, seed: int, distance: float) -> None:
    row = random_row(size, seed)
    ids, logits = _native.select_near_top(row, distance)
    expected = np.flatnonzero(row >= np.float32(float(row.max()) - distance))
    assert ids.tolist() == expected.tolist()
    assert logits.tolist() == row[expected].tolist()


def test_what_is_banned_is_never_near() -> None:
    row = random_row(1000, 1, banned=0.5)
    ids, _ = _native.select_near_top(row, math.inf)
    assert ids.tolist() == np.flatnonzero(row > -np.inf).tolist()


@each_isa
@given(size=st.sampled_from(SIZES), seed=st.integers(0, 99))
def test_sums_are_those_of_the_twin(size: int, seed: int) -> None:
    row = random_row(size, seed)
    x = row.astype(np.float64) - row.max()
    powers = exp_twin(x)
    weighted = np.where(powers > 0.0, powers * np.where(powers > 0.0, x, 0.0), 0.0)
    assert _native.sum_row(row) == (row.max(), total_twin(powers), total_twin(weighted))
    out = np.zeros((1, 2))
    _native.sum_rows(row[np.newaxis], out, 1)
    assert out[0].tolist() == [row.max(), total_twin(powers)]
    assert _native.softmax(row).tolist() == (powers / total_twin(powers)).tolist()
    allowed = row[row > -np.inf].astype(np.float64)
    mean, deviation = _native.spread_of_row(row)
    assert mean == pytest.approx(allowed.mean(), rel=1e-12, abs=1e-12)
    assert deviation == pytest.approx(allowed.std(), rel=1e-9, abs=1e-6)


@each_isa
@given(
    size=st.sampled_from(SIZES),
    seed=st.integers(0, 99),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_draws_are_those_of_the_twin(size: int, seed: int, uniform: float) -> None:
    row = random_row(size, seed)
    assert _native.draw(row, uniform) == draw_twin(row, uniform)


def test_a_draw_ends_on_a_token_that_is_allowed() -> None:
    row = np.full(600, -np.inf, np.float32)
    row[[3, 300]] = 0.0
    almost_one = math.nextafter(1.0, 0.0)
    assert [_native.draw(row, u) for u in (0.0, 0.49, 0.51, almost_one)] == [3, 3, 300, 300]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 100, 511, 599])
def test_nan_and_infinity_are_refused(wrong: float, place: int) -> None:
    row = random_row(600, 2)
    row[place] = wrong
    for call in (
        lambda: _native.select_near_top(row, 1.0),
        lambda: _native.sum_row(row),
        lambda: _native.softmax(row),
        lambda: _native.spread_of_row(row),
        lambda: _native.draw(row, 0.5),
    ):
        with pytest.raises(ValueError, match="NaN or infinity"):
            call()
    out = np.zeros((1, 2))
    _native.sum_rows(row[np.newaxis], out, 1)
    assert np.isnan(out).all()


@pytest.mark.parametrize("size", [0, 1, 300])
def test_a_row_without_a_token_is_refused(size: int) -> None:
    row = np.full(size, -np.inf, np.float32)
    for call in (
        lambda: _native.select_near_top(row, 1.0),
        lambda: _native.sum_row(row),
        lambda: _native.softmax(row),
        lambda: _native.spread_of_row(row),
        lambda: _native.draw(row, 0.5),
    ):
        with pytest.raises(ValueError, match="no token is left"):
            call()


@each_isa
@given(x=st.lists(st.floats(-800, 700), max_size=40))
def test_exp_is_that_of_the_twin_and_right(x: list[float]) -> None:
    values = np.array(x, np.float64)
    found = _native.exp(values)
    assert found.tolist() == exp_twin(values).tolist()
    normal = values > -708.0
    exact = np.exp(values[normal])
    assert (np.abs(found[normal] - exact) <= 2 * np.spacing(exact)).all()
    assert not found[~normal].any()


@each_isa
@given(x=st.lists(st.floats(1e-300, 1e300), max_size=40))
def test_log_is_that_of_the_twin_and_right(x: list[float]) -> None:
    values = np.array(x, np.float64)
    found = _native.log(values)
    assert found.tolist() == log_twin(values).tolist()
    exact = np.log(values)
    assert (np.abs(found - exact) <= 2 * np.spacing(np.abs(exact))).all()


def test_exp_and_log_at_the_edges() -> None:
    assert _native.exp(np.array([0.0, -0.0, -np.inf, -1e300])).tolist() == [1.0, 1.0, 0.0, 0.0]
    assert _native.log(np.array([1.0, 2.0**10, 2.0**-1000])).tolist() == [
        0.0,
        pytest.approx(10 * math.log(2), rel=1e-15),
        pytest.approx(-1000 * math.log(2), rel=1e-15),
    ]


@each_isa
@given(size=st.integers(1, 200), words=st.integers(0, 8), seed=st.integers(0, 99))
def test_masks(size: int, words: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    mask = random.integers(0, 2**32, words, dtype=np.uint32)
    mask[random.random(words) < 0.3] = 0xFFFFFFFF
    mask[random.random(words) < 0.3] = 0
    row = random.normal(size=size).astype(np.float32)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
    allowed = np.zeros(size, bool)
    allowed[: len(bits)] = bits[:size]
    expected = np.where(allowed, row, -np.inf)
    _native.mask_row(row, mask)
    assert row.tolist() == expected.tolist()
