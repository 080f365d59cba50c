"""Kernels on single rows, on every instruction set, against float64: odd lengths, extremes.

Inputs that a model never has (infinities, denormals, NaN) still have to give what the
definition says, because a spoiled value must be seen, not smoothed over.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.reference import rows as reference
from ingot.graph.ops import Activation, NormKind

Floats = NDArray[np.float32]
NATIVE = _native.CODES["Activation"].__members__
KINDS = {  # the functions of one number alone
    kind: NATIVE[kind.name] for kind in Activation if kind is not Activation.CLAMPED_SWIGLU
}
LENGTHS = range(1, 71)
GUARD = np.float32(-12345.0)
pytestmark = pytest.mark.usefixtures("isa")

EXTREMES = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.2e-38, 1e-20, -1e-20, 1e-7, -1e-7, 0.5, -0.5,
     10, -10, 87, -87, 88.7, -88.7, 89, -89, 103, -103, 1e3, -1e3, 1e10, -1e10, 3e38, -3e38],
    np.float32,
)  # fmt: skip


def ulps(actual: Floats, exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance in units of the last place of the exact result, rounded to float32."""
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(actual - exact) / spacing


def exponentials(x: Floats) -> Floats:
    out = np.empty_like(x)
    _native.exponentials(x, out)
    return out


def softcap(x: Floats, cap: float) -> Floats:
    out = np.empty_like(x)
    _native.softcap(x, cap, out)
    return out


def activate(kind: Activation, gate: Floats, up: Floats | None = None) -> Floats:
    out = np.empty_like(gate)
    _native.activate(KINDS[kind], gate, up, out)
    return out


def norm(kind: NormKind, x: Floats, weight: Floats, bias: Floats | None, epsilon: float) -> Floats:
    out = np.empty_like(x)
    _native.norm(kind is NormKind.LAYER, x, weight, bias, epsilon, out)
    return out


def exact_activation(kind: Activation, x: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return reference.activate(kind, x)


def test_exp_is_within_two_ulps() -> None:
    """All of the range, its ends, and around every power of two."""
    spread = np.linspace(-87.3, 88.7, 400_001)
    powers = np.arange(-125, 128) * math.log(2)
    near = (powers[:, None] + np.linspace(-1e-4, 1e-4, 41)).reshape(-1)
    halves = ((np.arange(-125, 127) + 0.5) * math.log(2))[:, None] + np.linspace(-1e-4, 1e-4, 41)
    x = np.concatenate([spread, near, halves.reshape(-1), [0.0, -0.0, 1e-45, -1e-8, 1e-8]])
    x = np.clip(x, -87.3, 88.7).astype(np.float32)
    assert ulps(exponentials(x), np.exp(x.astype(np.float64))).max() <= 2


def test_exp_is_held_outside_its_range() -> None:
    low, high = exponentials(np.float32([-87.3, 88.7]))
    found = exponentials(np.float32([-88, -1e3, -3e38, -np.inf, 89, 1e3, 3e38, np.inf]))
    np.testing.assert_array_equal(found, [low] * 4 + [high] * 4)


def test_tanh_is_within_2e7() -> None:
    x = np.concatenate([np.linspace(-12, 12, 200_001), EXTREMES, [np.inf, -np.inf]])
    x = x.astype(np.float32)
    error = np.abs(softcap(x, 1.0) - np.tanh(x.astype(np.float64)))
    assert error.max() <= 2e-7


@pytest.mark.parametrize("cap", [0.5, 30.0, 50.0])
def test_softcap(cap: float) -> None:
    x = np.concatenate([np.linspace(-300, 300, 5001), EXTREMES]).astype(np.float32)
    exact = cap * np.tanh(x.astype(np.float64) / cap)
    assert np.abs(softcap(x, cap) - exact).max() <= 4e-7 * cap


@pytest.mark.parametrize("kind", KINDS)
def test_activations(kind: Activation) -> None:
    """Within a few units of the larger of the result and a millionth of the input."""
    x = np.concatenate([np.linspace(-30, 30, 50_001), EXTREMES]).astype(np.float32)
    if kind is Activation.RELU_SQUARED:
        x = x[np.abs(x) < 1e19]  # beyond, the square is not a finite float32
    exact = exact_activation(kind, x.astype(np.float64))
    found = activate(kind, x)
    assert np.isfinite(found).all()
    # Far below zero the result is a product of something tiny: there, small is enough.
    bound = 4e-7 * np.abs(exact) + 1.5e-7 * np.minimum(np.abs(x), 10)
    if kind is Activation.TANH:
        bound = np.full_like(exact, 2e-7)
    worst = np.argmax(np.abs(found - exact) / np.maximum(bound, 1e-45))
    assert np.all(np.abs(found - exact) <= bound + 1e-45), (x[worst], found[worst], exact[worst])


@pytest.mark.parametrize("kind", KINDS)
def test_activations_far_from_zero(kind: Activation) -> None:
    far = np.float32([1e3, 1e10, 1e18])
    square = kind is Activation.RELU_SQUARED
    bounded = kind in {Activation.TANH, Activation.SIGMOID}
    expected = far**2 if square else np.ones_like(far) if bounded else far
    below = {Activation.TANH: -np.ones_like(far), Activation.IDENTITY: -far}
    np.testing.assert_allclose(activate(kind, far), expected, rtol=1e-6)
    np.testing.assert_allclose(activate(kind, -far), below.get(kind, 0 * far), atol=1e-30)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_stays_none(kind: Activation) -> None:
    x = np.linspace(-2, 2, 37, dtype=np.float32)
    x[[3, 20, 36]] = np.nan
    for found in (exponentials(x), softcap(x, 2.0), activate(kind, x)):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(x))


@pytest.mark.parametrize("kind", KINDS)
def test_every_length(kind: Activation) -> None:
    """A row's end is the beginning of other memory: nothing there is read or written."""
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        gate, up = rng.standard_normal((2, n)).astype(np.float32)
        room = np.full(n + 32, GUARD, np.float32)
        _native.activate(KINDS[kind], gate, up, room[:n])
        exact = exact_activation(kind, gate.astype(np.float64)) * up
        np.testing.assert_allclose(room[:n], exact, rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(room[n:], GUARD)
        np.testing.assert_allclose(softcap(gate, 3.0), 3 * np.tanh(gate / 3), atol=2e-6)
        np.testing.assert_allclose(exponentials(gate), np.exp(gate.astype(np.float64)), rtol=3e-7)


@pytest.mark.parametrize("kind", NormKind)
@pytest.mark.parametrize("with_bias", [False, True])
def test_norms_of_every_length(kind: NormKind, with_bias: bool) -> None:
    rng = np.random.default_rng(2)
    for n in [*LENGTHS, 127, 1000, 4099]:
        x = (rng.standard_normal(n) * 3 + 1).astype(np.float32)
        weight = rng.standard_normal(n).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32) if with_bias else None
        exact = reference.norm(x[None].astype(np.float64), kind, 1e-6, weight, bias)[0]
        found = norm(kind, x, weight, bias, 1e-6)
        # DESIGN allows 1e-4.
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=2e-6 * np.abs(exact).max())


@pytest.mark.parametrize("kind", NormKind)
def test_norms_of_extreme_rows(kind: NormKind) -> None:
    """Zeros, denormals, one outlier, and values whose squares are still floats."""
    ones = np.ones(100, np.float32)
    rows = np.random.default_rng(3).standard_normal((5, 100)).astype(np.float32)
    rows[0] = 0
    rows[1] *= np.float32(1e-40)
    rows[2] *= np.float32(1e17)
    rows[3, 50] = 1e15
    rows[4] = 7  # a layer norm's variance is 0
    for x in rows:
        exact = reference.norm(x[None].astype(np.float64), kind, 1e-5, ones)[0]
        np.testing.assert_allclose(norm(kind, x, ones, None, 1e-5), exact, rtol=1e-4, atol=1e-5)


def test_a_row_depends_on_nothing_else() -> None:
    """Shifted in memory, among others or alone: the same bits."""
    rng = np.random.default_rng(4)
    x, weight = rng.standard_normal((2, 77)).astype(np.float32)
    first = norm(NormKind.LAYER, x, weight, None, 1e-6), activate(Activation.SILU, x)
    for shift in range(1, 17):
        room = np.zeros(77 + shift, np.float32)
        room[shift:] = x
        again = (
            norm(NormKind.LAYER, room[shift:], weight, None, 1e-6),
            activate(Activation.SILU, room[shift:]),
        )
        np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(activate(Activation.SILU, x[:33]), first[1][:33])
