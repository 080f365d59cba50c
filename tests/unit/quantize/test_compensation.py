"""Rounding with compensation: less error of the results than rounding each weight by itself."""

import numpy as np
import pytest

from ingot.gguf import GgmlType as T
from ingot.quant import decode, encode
from ingot.quantize.compensation import encode_compensated, root_of

ROWS, COLUMNS, TOKENS = 24, 512, 2000


def correlated_inputs(seed: int, columns: int = COLUMNS) -> np.ndarray:
    """Inputs that are mixtures of a few causes, and some noise."""
    rng = np.random.default_rng(seed)
    causes = np.random.default_rng(1).standard_normal((columns // 8, columns))
    found = rng.standard_normal((TOKENS, columns // 8)) @ causes
    return (found + 0.3 * rng.standard_normal(found.shape)).astype(np.float32)


def weights(columns: int = COLUMNS) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((ROWS, columns)).astype(np.float32)


def loss(blocks: np.ndarray, kind: T, inputs: np.ndarray) -> float:
    """The squared error of what the matrix computes."""
    values = weights(inputs.shape[1])
    error = (decode(blocks.reshape(-1), kind, values.shape) - values).astype(np.float64)
    return float(np.square(inputs @ error.T).sum())


@pytest.mark.parametrize(
    "kind", [T.Q4_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.Q4_K, T.Q6_K, T.IQ2_XS, T.MXFP4]
)
def test_results_have_less_error_on_other_inputs(kind: T) -> None:
    inputs, others = correlated_inputs(3), correlated_inputs(4)
    root = root_of(inputs.T @ inputs)
    assert root is not None
    counts = np.square(inputs).mean(axis=0)
    plain = loss(encode(weights(), kind, importance=counts), kind, others)
    least = 0.9 if kind.block_size == 32 else 0.97  # of two blocks, one can make up for the other
    assert loss(encode_compensated(weights(), root, kind), kind, others) < least * plain


def test_the_root_is_that_of_the_damped_products() -> None:
    inputs = correlated_inputs(5, 96)
    products = inputs.T @ inputs
    root = root_of(products)
    assert root is not None
    assert (np.tril(root, -1) == 0).all()
    damped = products + 0.01 * np.trace(products) / 96 * np.eye(96)
    np.testing.assert_allclose(root @ root.T, damped, rtol=1e-4, atol=1e-4 * damped.max())


def test_a_block_is_rounded_to_what_makes_up_for_the_others() -> None:
    """Two inputs that are the same: the second weight takes back what the first one lost."""
    inputs = np.zeros((8, 64), np.float32)
    inputs[:, 0] = inputs[:, 32] = 1
    values = np.zeros((1, 64), np.float32)
    values[0, [0, 1, 32, 33]] = 0.31, 1.0, 0.2, 1.0  # the step of a block of Q4_0 is 1/8
    root = root_of(inputs.T @ inputs)
    assert root is not None
    found = decode(encode_compensated(values, root, T.Q4_0), T.Q4_0, values.shape)
    plain = decode(encode(values, T.Q4_0), T.Q4_0, values.shape)
    assert abs(plain[0, 0] + plain[0, 32] - 0.51) > abs(found[0, 0] + found[0, 32] - 0.51)


def test_inputs_that_are_not_related_change_nothing() -> None:
    products = np.diag(np.linspace(1, 2, COLUMNS)).astype(np.float32)
    root = root_of(products)
    assert root is not None
    counts = np.diag(products) + 0.01 * 1.5
    plain = encode(weights(), T.Q5_0, importance=counts)
    found = encode_compensated(weights(), root, T.Q5_0)
    assert (found != plain).mean() < 1e-3  # the importance of each block has its own mean


def test_nothing_to_compensate_with() -> None:
    assert root_of(np.zeros((32, 32), np.float32)) is None
    assert root_of(np.full((32, 32), np.nan, np.float32)) is None
