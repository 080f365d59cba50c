"""The soak test in short; `make soak` is the long one."""

import sys
from pathlib import Path

import pytest

from soak import soak


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_is_lost_in_300_requests(tiny: Path) -> None:
    run, wrong = soak(tiny, 300)
    assert not wrong
    assert run.kinds["text"] > 50
    assert run.kinds["ProcessorError"] > 10
    assert run.kinds["cancel"] > 10
