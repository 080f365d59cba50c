"""Turning speeds by hand, by their properties, and by `transformers`."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.graph.rope import Yarn, frequencies


def test_plain() -> None:
    speeds, magnitude = frequencies(8, 10000.0)
    assert speeds == pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-14)
    assert magnitude == 1.0


def test_linear_divides_all() -> None:
    speeds, magnitude = frequencies(8, 10000.0, linear_factor=4.0)
    assert speeds == pytest.approx([0.25, 0.025, 0.0025, 0.00025], rel=1e-14)
    assert magnitude == 1.0


def test_factors_divide_each() -> None:
    speeds, _ = frequencies(8, 10000.0, factors=[1, 2, 4, 8])
    assert speeds == pytest.approx([1, 0.05, 0.0025, 0.000125], rel=1e-14)


def test_as_many_factors_as_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        frequencies(8, 10000.0, factors=[1, 2, 4])


def test_yarn_by_hand() -> None:
    """Pair 1.31 makes 32 turns in 4096 tokens, pair 2.81 makes one: the ramp is 1 to 3."""
    speeds, magnitude = frequencies(8, 10000.0, yarn=Yarn(factor=4.0, original_context=4096))
    assert speeds == pytest.approx([1, 0.1, (0.01 + 0.0025) / 2, 0.00025], rel=1e-12)
    assert magnitude == pytest.approx(1 + 0.1 * math.log(4))


@pytest.mark.parametrize(("multiplier", "magnitude"), [(0.0, 1.2), (1.0, 1.0), (0.5, 1.2 / 1.1)])
def test_yarn_of_models_that_scale_attention_themselves(
    multiplier: float, magnitude: float
) -> None:
    yarn = Yarn(factor=math.exp(2), original_context=4096, log_multiplier=multiplier)
    assert frequencies(8, 10000.0, yarn=yarn)[1] == pytest.approx(magnitude)


@given(
    size=st.integers(2, 64).map(lambda half: 2 * half),
    base=st.floats(100, 1e6),
    factor=st.floats(1, 64),
    context=st.integers(64, 1 << 17),
)
def test_yarn_lies_between(size: int, base: float, factor: float, context: int) -> None:
    """No pair turns faster than before or slower than all of the stretch."""
    plain, _ = frequencies(size, base)
    stretched, magnitude = frequencies(
        size, base, yarn=Yarn(factor=factor, original_context=context)
    )
    shares = [b / a for a, b in zip(plain, stretched, strict=True)]
    assert all(1 / factor - 1e-12 <= share <= 1 + 1e-12 for share in shares)
    assert all(a >= b - 1e-12 for a, b in pairwise(shares))
    assert magnitude >= 1


@pytest.mark.oracle
@pytest.mark.parametrize(("size", "base"), [(64, 10000.0), (128, 1000000.0), (16, 500.0)])
@pytest.mark.parametrize(("factor", "original"), [(4.0, 4096), (40.0, 256), (2.5, 32768)])
def test_yarn_as_transformers(size: int, base: float, factor: float, original: int) -> None:
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from transformers import LlamaConfig  # noqa: PLC0415
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415

    config = LlamaConfig(
        hidden_size=size,
        num_attention_heads=1,
        max_position_embeddings=int(original * factor),
        rope_parameters={
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            "rope_theta": base,
        },
    )
    expected, magnitude = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    found, ours = frequencies(size, base, yarn=Yarn(factor=factor, original_context=original))
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-6)
    assert ours == pytest.approx(magnitude, rel=1e-6)
