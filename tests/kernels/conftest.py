"""What the kernel tests share."""

from collections.abc import Iterator

import pytest

from ingot import _native
from ingot.config import config


@pytest.fixture(params=_native.instruction_sets())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test on one instruction set, and put back the one that was in use."""
    before = config().isa
    _native.set_isa(request.param)
    yield request.param
    _native.set_isa(before)
