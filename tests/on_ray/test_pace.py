"""How often a stream sends through Ray."""

import pytest

from ingot.ray.pace import pause


@pytest.mark.parametrize(
    ("streams", "seconds"), [(0, 0.04), (1, 0.04), (4, 0.04), (8, 0.08), (10, 0.1), (512, 0.1)]
)
def test_many_streams_send_less_often(streams: int, seconds: float) -> None:
    assert pause(streams) == pytest.approx(seconds)
