"""The sizes that `ingot doctor` finds to fit a GPU: its rule against the planner's count."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

from ingot.cli.doctor.prediction import Size, gpu_bytes

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    not all(find_spec(package) for package in ("torch", "triton")),
    reason="the planner counts with PyTorch: make test-gpu-interpreter",
)
@pytest.mark.parametrize("mix", ["Q4_K_M", "Q8_0"])
@pytest.mark.parametrize("name", ["qwen2-1.5b", "llama3-8b", "qwen3-30b-a3b"])
def test_the_rule_is_near_what_the_planner_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, mix: str
) -> None:
    from ingot.backends.gpu import imagined_device  # noqa: PLC0415
    from ingot.engine.model.gpu_fit import fit_gpu  # noqa: PLC0415
    from ingot.graph.kv_type import KvType  # noqa: PLC0415
    from ingot.models import build_graph  # noqa: PLC0415

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    header = runpy.run_path(str(ROOT / "docs" / "make_gpu_table.py"))["header"]
    model = header(name, mix, tmp_path)
    fit = fit_gpu(
        build_graph(model, 8192), model, KvType.F16, imagined_device(), context=8192, room=1 << 50
    )
    planned = fit.weights + fit.steps + 8192 * fit.token
    stored = sum(tensor.nbytes for tensor in model.tensors.values())
    size = Size(name, weights=0, active=0, layers=1, kv_width=fit.token // 2)
    assert planned * 0.99 <= gpu_bytes(size, mix, stored) <= planned * 1.05 + 600_000_000
