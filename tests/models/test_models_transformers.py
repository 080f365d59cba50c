"""The fixtures are what `transformers` computes today."""

import numpy as np
import pytest

from models.recipes import RECIPES
from models.tiny_models import Fixture

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", RECIPES)
def test_fixture_is_fresh(name: str) -> None:
    pytest.importorskip("torch", reason="torch is not here: pip install torch==2.13.0")
    from models.make_fixtures import make  # noqa: PLC0415

    stored, fresh = Fixture.load(name), make(RECIPES[name])
    assert stored.metadata == fresh.metadata
    assert stored.shapes == fresh.shapes
    assert stored.token_ids == fresh.token_ids
    assert stored.constants.keys() == fresh.constants.keys()
    for key, values in fresh.constants.items():
        np.testing.assert_array_equal(stored.constants[key], values)
    np.testing.assert_allclose(stored.logits, fresh.logits, atol=2e-6)
