"""`benchmarks/bench_doctor.py`: its ratios, its verdict, and what it asks of the command."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingot.cli.doctor import calibration, report
from ingot.config import config
from tiny_llama import write_tiny_llama

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program; the name of the module `models` is also that of a folder of tests."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = spec_from_file_location("models", BENCHMARKS / "models.py")
    assert spec is not None
    assert spec.loader is not None
    models = module_from_spec(spec)
    spec.loader.exec_module(models)
    monkeypatch.setitem(sys.modules, "models", models)
    return import_module("bench_doctor")


def test_a_ratio_is_the_median_of_the_rounds(bench: Any) -> None:
    said = iter([(100.0, 80.0), (10.0, 40.0), (90.0, 100.0), (44.0, 40.0), (120.0, 100.0)] * 2)
    asked: list[str] = []

    def ask(path: Path) -> Any:
        asked.append(path.stem)
        return bench.Speeds(*next(said))

    first, second = bench.compare([Path("a/first.gguf"), Path("second.gguf")], 5, ask)
    assert asked == ["first", "second"] * 5, "models take turns"
    assert first.ratios == (1.25, 0.9, 1.2, 0.25, 1.1)
    assert (first.model, first.predicted, first.measured) == ("first", 90.0, 80.0)
    assert first.ratio == 1.1, "that of the medians is 1.125"
    assert second.ratios == (0.25, 1.1, 1.25, 0.9, 1.2)
    assert bench.row(first) == "| first | 90.0 | 80.0 | 1.10 | 0.25 to 1.25 |"


@pytest.mark.parametrize(
    ("predicted", "near"),
    [(74.9, False), (75.0, True), (100.0, True), (125.0, True), (125.1, False), (None, False)],
)
def test_near_is_within_a_quarter(bench: Any, predicted: float | None, near: bool) -> None:
    found = bench.Comparison.of("model", [bench.Speeds(predicted, 100.0)])
    assert found.is_near is near
    text = bench.row(found)
    assert ("(outside)" in text) == (not near and predicted is not None)
    assert ("no prediction" in text) == (predicted is None)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("INGOT_THREADS", "1")
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    config.cache_clear()
    monkeypatch.setattr(calibration, "_SECONDS", dict.fromkeys(calibration._SECONDS, 0.001))
    monkeypatch.setattr(calibration, "_READ_BYTES", 1 << 20)
    monkeypatch.setattr(calibration, "_ROWS_BYTES", 1 << 20)
    monkeypatch.setattr(report, "_MEASURED_SECONDS", 0.01)
    yield
    config.cache_clear()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (1.3, 1)])
def test_the_command_line_compares_what_doctor_says(
    bench: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    factor: float,
    status: int,
) -> None:
    """With the report of this process for that of a fresh one, and a prediction that is known."""
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    own_cache = config().cache
    caches = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> Any:
        assert command[1:] == ["-m", "ingot", "doctor", "-m", str(model), "--again", "--json"]
        assert command[0] == sys.executable
        caches.append(Path(env["INGOT_CACHE"]))
        assert caches[-1].is_dir()
        found = report.as_json(report.diagnose(model, again=True))
        speeds: Any = found["model"]
        speeds["predicted"] = speeds["measured"] * factor
        return SimpleNamespace(stdout=json.dumps(found, default=str).encode())

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["bench_doctor.py", str(model), "--rounds", "2", "--json"])
    with pytest.raises(SystemExit) as end:
        bench.main()
    assert int(end.value.code or 0) == status
    (found,) = json.loads(capsys.readouterr().out)
    assert found["model"] == "tiny"
    assert found["ratio"] == pytest.approx(factor)
    assert len(found["ratios"]) == len(caches) == 2
    assert own_cache not in caches
    assert not any(cache.exists() for cache in caches)


def test_the_page_names_the_command() -> None:
    page = (BENCHMARKS.parent / "docs" / "performance.md").read_text()
    section = page.partition("## Your machine")[2].partition("\n## ")[0]
    assert "`python benchmarks/bench_doctor.py`" in section
