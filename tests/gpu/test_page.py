"""The table of docs/gpu.md is what its script writes: the planner's numbers."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not all(find_spec(package) for package in ("torch", "triton")),
    reason="the planner counts with PyTorch: make test-gpu-interpreter",
)
def test_the_table_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = runpy.run_path(str(ROOT / "docs" / "make_gpu_table.py"))
    text = (ROOT / "docs" / "gpu.md").read_text()
    assert script["BEGIN"] in text
    assert script["page"](text) == text
