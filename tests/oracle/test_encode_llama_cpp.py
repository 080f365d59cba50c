"""The encoders beside llama.cpp's quantizer (without an importance matrix).

Where both search for scales, the root-mean-square error of ours must not be larger, on
synthetic weights of many shapes and on the tensors of real models. Q8_K is defined by
llama.cpp: the bytes must be the same.
"""

import ctypes
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ingot.gguf import GgmlType, GgufLoader
from ingot.quant import decode, encode

pytestmark = pytest.mark.oracle

SEARCHED = [
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
]  # fmt: skip
# llama.cpp encodes these only with an importance matrix; here all columns count the same.
WITH_IMPORTANCE = ("IQ1_S", "IQ2_XXS", "IQ2_XS")
ROW = 256

# Below this both errors are the rounding of one half-precision scale, and luck.
HALF_ROUNDING = 2.0**-11


@pytest.fixture(scope="module")
def ggml() -> ctypes.CDLL:
    spec = find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        pytest.skip("llama_cpp is not installed (make test-oracle installs it)")
    found = sorted((Path(spec.origin).parent / "lib").glob("libggml-base*"))
    if not found:
        pytest.skip("this llama_cpp has no libggml-base beside it")
    library = ctypes.CDLL(str(found[0]))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    return library


def quantize(ggml: ctypes.CDLL, weights: np.ndarray, type: GgmlType) -> np.ndarray:
    blocks = np.zeros(weights.size // type.block_size * type.block_bytes, np.uint8)
    even = np.ones(ROW, np.float32)
    written = ggml.ggml_quantize_chunk(
        ctypes.c_int(type),
        weights.ctypes.data_as(ctypes.c_void_p),
        blocks.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(0),
        ctypes.c_int64(weights.size // ROW),
        ctypes.c_int64(ROW),
        even.ctypes.data_as(ctypes.c_void_p) if type.name in WITH_IMPORTANCE else None,
    )
    assert written == blocks.size
    return blocks


def relative_error(weights: np.ndarray, blocks: np.ndarray, type: GgmlType) -> float:
    difference = weights.astype(np.float64) - decode(blocks, type)
    return float(np.sqrt(np.square(difference).mean() / np.square(weights, dtype="f8").mean()))


def assert_no_worse(ggml: ctypes.CDLL, weights: np.ndarray, name: str) -> None:
    type = GgmlType[name]
    weights = np.ascontiguousarray(weights, np.float32).reshape(-1)
    ours = relative_error(weights, encode(weights, type), type)
    theirs = relative_error(weights, quantize(ggml, weights, type), type)
    assert ours <= max(theirs, HALF_ROUNDING), f"{ours / theirs:.4f} times {theirs:.6f}"


def gaussian(*shape: int) -> np.ndarray:
    return np.random.default_rng(21).standard_normal(shape)


SHAPE, COLUMN = (256, 1024), (256, 1)
GROUPS, GROUP_COLUMN = (8192, 32), (8192, 1)
SYNTHETIC = {
    "gaussian": lambda rng: 0.02 * rng.standard_normal(SHAPE),
    "student": lambda rng: 0.02 * rng.standard_t(3, SHAPE),
    "laplace": lambda rng: 0.02 * rng.laplace(size=SHAPE),
    "uniform": lambda rng: rng.uniform(-1, 1, SHAPE),
    "log-normal": lambda rng: rng.lognormal(0, 2, SHAPE) * rng.choice([-1, 1], SHAPE),
    "sparse": lambda rng: rng.standard_normal(SHAPE) * (rng.random(SHAPE) < 0.1),
    "half sparse": lambda rng: np.maximum(rng.standard_normal(SHAPE), 0),
    "positive": lambda rng: np.abs(rng.standard_normal(SHAPE)),
    "negative": lambda rng: -np.abs(rng.standard_normal(SHAPE)),
    "far from zero": lambda rng: 1 + 0.01 * rng.standard_normal(SHAPE),
    "far below zero": lambda rng: -1 + 0.01 * rng.standard_normal(SHAPE),
    "tiny": lambda rng: 2e-6 * rng.standard_normal(SHAPE),
    "large": lambda rng: 1e4 * rng.standard_normal(SHAPE),
    "outliers": lambda rng: (
        rng.standard_normal(SHAPE) * rng.choice([1, 50], SHAPE, p=[0.998, 0.002])
    ),
    "rows of all sizes": lambda rng: rng.standard_normal(SHAPE) * rng.lognormal(0, 3, COLUMN),
    "ternary": lambda rng: rng.integers(-1, 2, SHAPE) * rng.uniform(0.5, 2, COLUMN),
    "sixteen levels": lambda rng: rng.integers(-8, 8, GROUPS) * rng.lognormal(0, 1, GROUP_COLUMN),
    "constant groups": lambda rng: rng.standard_normal(GROUP_COLUMN) * np.ones(GROUPS),
    "smooth": lambda rng: np.sin(rng.uniform() + 0.01 * np.arange(256 * 1024)),
}


@pytest.mark.parametrize("kind", SYNTHETIC)
@pytest.mark.parametrize("name", SEARCHED)
def test_synthetic_weights(ggml, name, kind):
    assert_no_worse(ggml, SYNTHETIC[kind](np.random.default_rng(20)), name)


@pytest.mark.parametrize("noise", [0, 0.05])
@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("model", ["gemma_path", "smollm2_path"])
def test_weights_of_a_model(ggml, request, model, name, noise):
    """Every matrix of the first and of a middle layer, as it is and with a little noise."""
    loader = GgufLoader(request.getfixturevalue(model))
    matrices = [
        tensor
        for tensor in loader.tensors.values()
        if tensor.name.startswith(("blk.0.", "blk.9.")) and len(tensor.shape) == 2
    ]
    assert len(matrices) == 14
    for tensor in matrices:
        weights = decode(tensor.data, tensor.type)
        weights = weights[: weights.size // ROW * ROW]
        assert_no_worse(ggml, weights + noise * weights.std() * gaussian(weights.size), name)


def test_q8_k_has_the_same_bytes(ggml):
    weights = np.concatenate(
        [
            gaussian(64, 256),
            gaussian(8, 256) * 1e30,
            np.random.default_rng(1).integers(-254, 255, (64, 256)) / 2,
            np.tile([127.0, -127.0, 0.5, 1.5], (2, 64)),
        ]
    ).astype(np.float32)
    expected = np.zeros((len(weights), GgmlType.Q8_K.block_bytes), np.uint8)
    ggml.quantize_row_q8_K_ref(
        weights.ctypes.data_as(ctypes.c_void_p),
        expected.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(weights.size),
    )
    assert np.array_equal(encode(weights, GgmlType.Q8_K), expected)
