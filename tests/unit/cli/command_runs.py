"""What a run of the command line is, for the tests and their fixtures."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INGOT = Path(sys.executable).with_name("ingot")
PATIENCE = 300  # seconds, on a machine that does other things


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    status: int
    out: str
    err: str


Run = Callable[..., Ran]
