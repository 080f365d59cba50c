"""`benchmarks/bench_recent.py`: its networks, its measurements on a tiny one, and its device."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingot.gguf import GgufLoader, GgufWriter
from ingot.models import build_graph
from models.tiny_models import Fixture

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("bench_recent")


@pytest.fixture
def setting(bench: Any) -> Any:
    return bench.Setting("cpu", threads=1, rounds=2, prompt=9, generated=2)


def test_every_network_has_the_tensors_that_its_keys_ask_for(bench: Any, tmp_path: Path) -> None:
    synthetic = import_module("synthetic")
    for name, model in bench.RECENT.items():
        writer = GgufWriter(tmp_path / "keys.gguf")
        synthetic.describe(writer, model)
        writer.add("tokenizer.ggml.tokens", ["a"] * model.vocabulary)
        writer.write()
        with GgufLoader(tmp_path / "keys.gguf") as file:
            tensors = {tensor: SimpleNamespace(shape=size) for tensor, size in model.tensors}
            known: Any = SimpleNamespace(path=Path(name), metadata=file.metadata, tensors=tensors)
            graph = build_graph(known)
        assert bool(graph.states) == (name in bench.PAIRS)
        assert len(graph.kv_layers) == (1 if graph.states else model.layers)


def test_a_tiny_model_is_measured(
    bench: Any,
    setting: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hybrid = Fixture.load("granitehybrid").write(tmp_path / "hybrid.gguf")
    pure = Fixture.load("qwen2").write(tmp_path / "pure.gguf")
    monkeypatch.setattr(bench, "DEPTH", 16)
    monkeypatch.setattr(bench, "DEPTHS", (0, 32))
    tests = bench.race(hybrid, None, setting)
    assert [test.name for test in tests] == ["prompt 9", "decode", "decode at 16"]
    assert all(test.ingot > 0 and test.peer is None for test in tests)
    with_states, alone = bench.beside_attention((hybrid, pure), setting)
    assert with_states.ratio > 0
    assert alone.ratio is None
    cost = bench.cost(hybrid, setting)
    assert cost.milliseconds.keys() == {0, 32}
    assert cost.tokens == 32 + 64 * 2
    assert cost.planned > 0
    assert (cost.planned_device, cost.taken_device) == (None, None)
    said = capsys.readouterr().out
    assert "hybrid, prompt 9: medians" in said
    assert "on the GPU" not in said


def test_a_device_that_is_not_here_is_told_before_files_are_written(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "bench_recent.py", "--device", "cuda"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "PyTorch" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list(tmp_path.iterdir())
