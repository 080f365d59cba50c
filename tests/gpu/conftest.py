"""Tests of the GPU backend: on a GPU, or in Triton's interpreter (TRITON_INTERPRET=1).

Without either they are skipped. `make test-gpu-interpreter` and `make test-gpu` run them.
"""

from importlib.util import find_spec

import pytest


def missing() -> str | None:
    """Why the tests cannot run here."""
    if not all(find_spec(package) for package in ("torch", "triton")):
        return "PyTorch and Triton are not here: make test-gpu-interpreter"
    from ingot.backends.gpu import has_gpu

    return None if has_gpu() else "there is no GPU; make test-gpu-interpreter needs none"


MISSING = missing()
collect_ignore = (
    []
    if MISSING is None
    else [
        "test_gpu_models.py",
        "test_gpu_linear.py",
        "test_gpu_attention.py",
        "test_gpu_invariance.py",
        "test_gpu_packing.py",
    ]
)
if not find_spec("triton"):
    collect_ignore.append("test_compile.py")


@pytest.fixture(autouse=True)
def _needs_gpu(request: pytest.FixtureRequest) -> None:
    if MISSING and "test_compile" not in request.node.nodeid:
        pytest.skip(MISSING)
