"""Tests of the GPU backend: on a GPU, or in Triton's interpreter (TRITON_INTERPRET=1).

Without either they are left out. `make test-gpu-interpreter` and `make test-gpu` run them.
"""

from importlib.util import find_spec
from pathlib import Path


def missing() -> str | None:
    """Why the tests cannot run here."""
    if not all(find_spec(package) for package in ("torch", "triton")):
        return "PyTorch and Triton are not here: make test-gpu-interpreter"
    from ingot.backends.gpu import has_gpu  # noqa: PLC0415 (which imports PyTorch)

    return None if has_gpu() else "there is no GPU; make test-gpu-interpreter needs none"


MISSING = missing()
_HERE = Path(__file__).parent
collect_ignore = [] if MISSING is None else [file.name for file in _HERE.glob("test_gpu_*.py")]
