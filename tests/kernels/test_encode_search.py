"""Native encoders that search: how small their error is, and that extremes do no harm.

The baseline is what anyone would write first: in each group the extreme weights become
the outermost levels and the others are rounded. Its scales stay floats, those of the
formats have a few bits, and still the search must come out ahead. (How it compares with
llama.cpp's: tests/oracle/test_encode_llama_cpp.py.)
"""

import numpy as np
import pytest
from gguf import quants as gguf_quants
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import _native
from ingot.errors import QuantError
from ingot.gguf import GgmlType
from ingot.quant import decode, encode
from run_batches import using_isa

# Weights per group and levels, the latter from 0 up where the format has a minimum.
AFFINE = {"Q2_K": (16, 3), "Q4_K": (32, 15), "Q5_K": (32, 31)}
SCALED = {
    "Q2_0": (64, range(-1, 3)),
    "Q3_K": (16, range(-4, 4)),
    "Q6_K": (16, range(-32, 32)),
    "IQ4_NL": (32, gguf_quants.IQ4_NL.kvalues),
    "IQ4_XS": (32, gguf_quants.IQ4_NL.kvalues),
    "NVFP4": (16, sorted(set(gguf_quants.NVFP4.kvalues))),
}
SEARCHED = [*AFFINE, *SCALED]
ENCODED = [type.name for type in GgmlType if _native.has_encoder(type)]
WEIGHTED = [name for name in ENCODED if _native.has_weighted_encoder(GgmlType[name])]
LARGEST = float(np.finfo(np.float32).max)


def rounded(weights: np.ndarray, name: str) -> np.ndarray:
    """The baseline's weights."""
    if name in AFFINE:
        size, top = AFFINE[name]
        groups = weights.reshape(-1, size)
        low = np.minimum(groups.min(axis=1, keepdims=True), 0)
        scale = (groups.max(axis=1, keepdims=True) - low) / top
        return (np.round((groups - low) / scale) * scale + low).reshape(weights.shape)
    size, levels = SCALED[name]
    groups, values = weights.reshape(-1, size), np.array(levels, np.float32)
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(axis=1)[:, None], axis=1)
    scale = extreme / values[0]
    nearest = np.abs((groups / scale)[..., None] - values).argmin(axis=-1)
    return (values[nearest] * scale).reshape(weights.shape)


def error(weights: np.ndarray, approximation: np.ndarray) -> float:
    """The root of the mean square, relative to that of the weights."""
    difference = weights.astype(np.float64) - approximation
    return float(np.sqrt(np.square(difference).mean() / np.square(weights, dtype="f8").mean()))


def round_trip(weights: np.ndarray, name: str) -> np.ndarray:
    return decode(encode(weights, GgmlType[name]), GgmlType[name], weights.shape)


def sample(kind: str) -> np.ndarray:
    rng = np.random.default_rng(11)
    shape = (64, 1024)
    draw = {
        "gaussian": lambda: rng.standard_normal(shape),
        "student": lambda: rng.standard_t(3, shape),
        "laplace": lambda: rng.laplace(size=shape),
        "positive": lambda: np.abs(rng.standard_normal(shape)),
        "outliers": lambda: rng.standard_normal(shape) * np.where(rng.random(shape) < 2e-3, 50, 1),
    }
    return draw[kind]().astype(np.float32)


# The error as a part of the baseline's: as measured, rounded up to the next hundredth.
KINDS = ["gaussian", "student", "laplace", "positive", "outliers"]
BOUNDS = {
    "Q2_0": [0.50, 0.65, 0.56, 0.40, 0.59],
    "Q2_K": [0.80, 0.75, 0.80, 0.73, 0.85],
    "Q3_K": [0.93, 0.96, 0.95, 0.92, 1.03],
    "Q4_K": [0.89, 0.91, 0.90, 0.86, 0.61],
    "Q5_K": [0.91, 0.94, 0.92, 0.87, 0.86],
    "Q6_K": [0.90, 0.96, 0.93, 0.91, 1.00],
    "IQ4_NL": [0.92, 0.96, 0.94, 0.92, 0.95],
    "IQ4_XS": [0.93, 0.97, 0.95, 0.93, 0.96],
    "NVFP4": [0.87, 0.95, 0.91, 0.87, 1.02],
}


@pytest.mark.parametrize("name", SEARCHED)
def test_error_beside_the_baseline(name):
    for kind, bound in zip(KINDS, BOUNDS[name], strict=True):
        weights = sample(kind)
        part = error(weights, round_trip(weights, name)) / error(weights, rounded(weights, name))
        assert part < bound, kind


@pytest.mark.parametrize("name", ENCODED)
def test_same_bytes_however_it_is_run(name):
    """On every instruction set, on several threads, and block by block."""
    type = GgmlType[name]
    count = 3 * (1 << 16) // type.block_bytes + 5  # a piece for a thread is 64 KiB
    weights = np.random.default_rng(5).standard_t(4, (count, type.block_size)).astype(np.float32)
    weights[::7] *= np.float32(1e-7)
    weights[3::11, ::3] = 0
    expected = encode(weights, type, threads=1)
    for isa in _native.instruction_sets():
        with using_isa(isa):
            assert np.array_equal(encode(weights, type, threads=1), expected)
    assert np.array_equal(encode(weights, type, threads=3), expected)
    alone = np.stack([encode(block, type) for block in weights[:40]])
    assert np.array_equal(alone, expected[:40])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", SEARCHED)
def test_zeros_stay_zeros(name):
    for zeros in (np.zeros(512, np.float32), np.full(512, 1e-40, np.float32)):
        assert not round_trip(zeros, name).any()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", SEARCHED)
def test_constant_weights(name):
    """Within the rounding of the scale, whatever the sign; NVFP4 has three bits for that."""
    weights = np.repeat(np.float32([1, -1, 0.3, -777, 1.001, -3.14159]), 256)
    limit = 2**-4 if name == "NVFP4" else 1.01 * 2**-11
    assert (np.abs(round_trip(weights, name) - weights) <= limit * np.abs(weights)).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", ["Q2_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_ternary_weights(name):
    """Weights on a coarse grid through zero are found, not spread over the levels."""
    rng = np.random.default_rng(2)
    weights = (rng.integers(-1, 2, (64, 256)) * rng.uniform(0.5, 2, (64, 1))).astype(np.float32)
    assert error(weights, round_trip(weights, name)) < 1e-3


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("name", "limit"), [("Q2_K", 5e-3), ("Q4_K", 2e-3), ("Q5_K", 1e-3)])
def test_weights_far_from_zero(name, limit):
    """The levels cover the weights, not the way to them from zero (that would be 1e-2)."""
    near_one = (1 + 0.01 * np.random.default_rng(2).standard_normal((64, 256))).astype(np.float32)
    for weights in (near_one, -near_one):
        assert error(weights, round_trip(weights, name)) < limit


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("Q2_K", 0.262),
        ("Q3_K", 0.146),
        ("Q4_K", 0.075),
        ("Q5_K", 0.041),
        ("Q6_K", 0.025),
        ("IQ4_NL", 0.12),
        ("IQ4_XS", 0.12),
    ],
)
def test_weights_whose_scale_is_subnormal(name, limit):
    """A few millionths: the steps between half-precision scales are large (limits measured)."""
    weights = sample("gaussian") * np.float32(2e-6)
    assert error(weights, round_trip(weights, name)) < limit


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", SEARCHED)
def test_one_huge_weight(name):
    weights = np.random.default_rng(3).standard_normal((32, 256)).astype(np.float32) * 0.01
    weights[np.arange(32), np.arange(0, 256, 8)] = 1000
    decoded = round_trip(weights, name)
    # IQ4 has no level at zero for the others, NVFP4 three bits for the scale.
    limit = 0.05 if name in {"IQ4_NL", "IQ4_XS", "NVFP4"} else 0.01
    assert np.isfinite(decoded).all()
    assert error(weights, decoded) < limit
    assert (np.abs(decoded[weights == 1000] - 1000) < 1000 * limit).all()


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", SEARCHED)
def test_weights_beyond_the_scale_saturate(name):
    """Too large for the scale: as far as the type reaches, sign kept, never infinite."""
    rng = np.random.default_rng(4)
    weights = (rng.choice([-1, 1], (8, 256)) * rng.uniform(0.5, 1, (8, 256))).astype(np.float32)
    weights *= np.float32(LARGEST)
    decoded = round_trip(weights, name)
    reach = {"NVFP4": 6 * 448, "Q2_0": 65504 * 2, "Q2_K": 65504 * 15}.get(name, 65504 * 63)
    assert np.isfinite(decoded).all()
    assert (np.sign(decoded) == np.sign(weights)).all() or name in AFFINE
    assert np.abs(decoded).max() >= 0.9 * reach


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", [name for name in SEARCHED if name != "NVFP4"])
def test_not_finite_makes_its_block_nan(name):
    type = GgmlType[name]
    for bad in (np.nan, np.inf, -np.inf):
        weights = np.random.default_rng(6).standard_normal((5, type.block_size)).astype(np.float32)
        weights[3, 9] = bad
        decoded = round_trip(weights, name)
        assert np.isnan(decoded[3]).all()
        assert np.isfinite(np.delete(decoded, 3, axis=0)).all()


@pytest.mark.usefixtures("isa")
def test_nvfp4_marks_a_group_that_is_not_finite():
    weights = np.ones((2, 64), np.float32)
    weights[1, 40] = np.inf
    assert (encode(weights, GgmlType.NVFP4)[:, :4] == 0x7F).tolist() == [
        [False] * 4,
        [False, False, True, False],
    ]


@pytest.mark.parametrize("name", SEARCHED)
@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    top=st.integers(-149, 127),
    spread=st.integers(0, 60),
    mantissa=st.integers(1, 24),
    zeros=st.floats(0, 1),
    shift=st.sampled_from([-1, 0, 1]),
)
def test_any_finite_weights(name, seed, top, spread, mantissa, zeros, shift):
    """Whatever the weights, the result is finite and nearer to them than zeros are."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(1 - 2**mantissa, 2**mantissa, 512) + shift * 2**mantissa
    binades = top - 1 - mantissa - rng.integers(0, spread + 1, 512)
    weights = np.ldexp(steps * (rng.random(512) >= zeros), binades).astype(np.float32)
    results = []
    for isa in _native.instruction_sets():
        with using_isa(isa):
            results.append(encode(weights, GgmlType[name]))
    assert all(np.array_equal(result, results[0]) for result in results)
    decoded = decode(results[0], GgmlType[name]).astype(np.float64)
    assert np.isfinite(decoded).all()
    for block, found in zip(weights.reshape(2, 256), decoded.reshape(2, 256), strict=True):
        squares = np.square(block, dtype="f8").sum()
        assert np.square(block - found).sum() <= squares * (1 + 1e-6)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", WEIGHTED)
def test_only_ratios_of_importance_count(name):
    """Also if its products with squares of weights are beyond all floats."""
    weights = np.random.default_rng(5).normal(0, 1, (2, 256)).astype("f4")
    counts = np.random.default_rng(6).uniform(0.5, 1, 256).astype("f4")

    def error(factor: float) -> float:
        found = encode(weights, GgmlType[name], importance=counts * np.float32(factor))
        difference = decode(found, GgmlType[name], weights.shape).astype("f8") - weights
        return float((difference**2 * counts).sum())

    for factor in (3e38, 1e20):
        assert error(factor) == pytest.approx(error(1.0), rel=0.01)
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(QuantError, match="finite and not negative"):
            encode(weights, GgmlType[name], importance=np.where(counts == counts[7], wrong, counts))
