"""The encoders beside llama.cpp's quantizer, with and without an importance matrix.

The root-mean-square error of ours must not be larger, on synthetic weights of many shapes and on
the tensors of real models. With importance, each squared error counts as much as its column. Q8_K
is defined by llama.cpp: the bytes must be the same.
"""

import ctypes
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ingot.engine.model.input_sums import sum_inputs
from ingot.gguf import GgmlType, GgufLoader
from ingot.quant import decode, encode
from ingot.quantize.imatrix import ImportanceMatrix
from ingot.tokenizer import Tokenizer

pytestmark = pytest.mark.oracle

SEARCHED = [
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS",
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "Q1_0", "Q2_0",
]  # fmt: skip
# Formats that are the same with importance and without, here and there.
INDIFFERENT = ["Q8_0", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4"]
# The others whose scales follow from the largest weight, if nothing is known of importance.
PLAIN = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", *INDIFFERENT]
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


def quantize(
    ggml: ctypes.CDLL, weights: np.ndarray, type: GgmlType, importance: np.ndarray | None = None
) -> np.ndarray:
    """Rows as long as the importance, if there is one."""
    blocks = np.zeros(weights.size // type.block_size * type.block_bytes, np.uint8)
    if importance is None and type.name in WITH_IMPORTANCE:
        importance = np.ones(ROW, np.float32)
    row = ROW if importance is None else importance.size
    written = ggml.ggml_quantize_chunk(
        ctypes.c_int(type),
        weights.ctypes.data_as(ctypes.c_void_p),
        blocks.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(0),
        ctypes.c_int64(weights.size // row),
        ctypes.c_int64(row),
        None if importance is None else importance.ctypes.data_as(ctypes.c_void_p),
    )
    assert written == blocks.size
    return blocks


def relative_error(
    weights: np.ndarray, blocks: np.ndarray, type: GgmlType, counts: np.ndarray | float = 1.0
) -> float:
    difference = weights.astype(np.float64) - decode(blocks, type).reshape(weights.shape)
    size = (np.square(weights, dtype="f8") * counts).mean()
    return float(np.sqrt((np.square(difference) * counts).mean() / size))


def errors(
    ggml: ctypes.CDLL, weights: np.ndarray, name: str, importance: np.ndarray | None = None
) -> tuple[float, float]:
    """Of our encoder, and of llama.cpp's."""
    type = GgmlType[name]
    weights = np.ascontiguousarray(weights, np.float32)
    weights = weights.reshape(-1) if importance is None else weights.reshape(-1, importance.size)
    counts = 1.0 if importance is None else importance
    encoded = encode(weights, type, importance=importance)
    ours = relative_error(weights, encoded, type, counts)
    theirs = relative_error(weights, quantize(ggml, weights, type, importance), type, counts)
    return ours, theirs


def assert_no_worse(ours: float, theirs: float) -> None:
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
@pytest.mark.parametrize("name", [*SEARCHED, *PLAIN])
def test_synthetic_weights(ggml, name, kind):
    assert_no_worse(*errors(ggml, SYNTHETIC[kind](np.random.default_rng(20)), name))


@pytest.mark.parametrize("kind", SYNTHETIC)
@pytest.mark.parametrize("name", [*SEARCHED, *PLAIN])
def test_synthetic_weights_with_importance(ggml, name, kind):
    weights = SYNTHETIC[kind](np.random.default_rng(20))
    counts = np.random.default_rng(3).lognormal(0, 1.5, ROW).astype(np.float32)
    assert_no_worse(*errors(ggml, weights, name, counts))


@pytest.mark.parametrize("noise", [0, 0.05])
@pytest.mark.parametrize("name", [*SEARCHED, *PLAIN])
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
        weights += noise * weights.std() * gaussian(weights.size)
        assert_no_worse(*errors(ggml, weights, name))


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    """SmolLM2 and the importance matrix of a text of this repository."""
    text = (Path(__file__).parents[2] / "docs/engine.md").read_bytes()
    with GgufLoader(smollm2_path) as loader:
        tokenizer = Tokenizer.from_metadata(loader.metadata)
        chunks = np.array(tokenizer.encode(text)[:1024], np.int32).reshape(4, 256)
        sums = sum_inputs(loader, list(chunks), threads=2)
        known = ImportanceMatrix.from_sums(Path("made"), sums, dataset="docs", chunks=4)
        yield loader, known


@pytest.mark.parametrize("noise", [0, 0.05])
@pytest.mark.parametrize("name", [*SEARCHED, *PLAIN])
def test_weights_of_a_model_with_its_importance(ggml, smollm2, name, noise):
    """Every matrix of two layers whose rows consist of blocks of the type.

    A format that cannot use importance may be unlucky with the columns of one matrix: of these,
    all matrices together are compared.
    """
    loader, imatrix = smollm2
    matrices = [
        tensor
        for tensor in loader.tensors.values()
        if tensor.name.startswith(("blk.0.", "blk.9."))
        and len(tensor.shape) == 2
        and tensor.shape[-1] % GgmlType[name].block_size == 0
    ]
    assert len(matrices) == (2 if GgmlType[name].block_size > 64 else 14)
    found = []
    for tensor in matrices:
        weights = decode(tensor.data, tensor.type, tensor.shape).astype(np.float16).astype("f4")
        weights += noise * weights.std() * gaussian(*weights.shape)
        (counts,) = imatrix.of(tensor.name, tensor.shape)
        found.append(errors(ggml, weights, name, counts))
    if name in INDIFFERENT:
        found = [tuple(np.sqrt(np.square(found).mean(axis=0)))]
    for ours, theirs in found:
        assert_no_worse(ours, theirs)


@pytest.mark.parametrize("name", ["Q1_0", "Q2_0"])
def test_decodes_as_llama_cpp(ggml, name):
    """The `gguf` package, which other tests compare with, does not know these."""
    type = GgmlType[name]
    blocks = np.random.default_rng(5).integers(0, 256, (4096, type.block_bytes), np.uint8)
    blocks[:64, 1] |= 0x7C  # infinities and NaN among the scales
    blocks[:32, 0], blocks[:32, 1] = 0, blocks[:32, 1] & 0xFC
    expected = np.empty((len(blocks), type.block_size), np.float32)
    getattr(ggml, f"dequantize_row_{name.lower()}")(
        blocks.ctypes.data_as(ctypes.c_void_p),
        expected.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_int64(expected.size),
    )
    found = decode(blocks, type, expected.shape)
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (
        np.isnan(found) & np.isnan(expected)
    )
    assert same.all()


def test_q1_0_has_the_same_bytes(ggml):
    weights = np.concatenate([gaussian(512, 256), 1e-6 * gaussian(64, 256)]).astype(np.float32)
    expected = quantize(ggml, weights, GgmlType.Q1_0)
    assert np.array_equal(encode(weights, GgmlType.Q1_0).reshape(-1), expected)


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
