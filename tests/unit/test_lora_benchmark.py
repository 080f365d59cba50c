"""`benchmarks/bench_lora.py` on a tiny model: which ratios it prints, and of what."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from models.tiny_models import Fixture

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Tokens per second of each kind: the warm-up, then three rounds, the second of them slow.
RATES = {
    (False, 0): (1.0, 100.0, 10.0, 102.0),  # none loaded
    (True, 0): (9.0, 99.0, 9.7, 95.0),  # loaded, unused
    (True, 1): (9.0, 80.0, 8.0, 82.0),
    (True, 8): (9.0, 72.0, 4.0, 73.8),
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("bench_lora")


def ran(
    bench: Any, path: Path, monkeypatch: pytest.MonkeyPatch, *options: str, rounds: int = 3
) -> None:
    arguments = ["bench_lora.py", "--model", str(path), "--rank", "2", "--rounds", str(rounds)]
    monkeypatch.setattr(sys, "argv", [*arguments, *options])
    bench.main()


def test_ratios_are_medians_of_rounds(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[bool, int]] = []

    def rate(llm: Any, adapters: list[str], offset: int) -> float:
        kind = (bool(llm.adapters), len(adapters))
        asked.append(kind)
        return RATES[kind][offset // bench.REQUESTS]

    monkeypatch.setattr(bench, "rate", rate)
    path = Fixture.load("llama").write(tmp_path / "a.gguf")
    ran(bench, path, monkeypatch)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(lines[-2]) == "loaded, unused / none loaded 0.970 (-3.0%)"
    assert " ".join(lines[-1]) == "eight / one 0.900 (-10.0%)"
    rounds = [asked[at : at + 4] for at in range(0, 16, 4)]
    assert rounds[1] == list(RATES) == rounds[2][::-1]  # whoever is first is last the next time


def test_a_tiny_model_is_measured(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Fixture.load("llama").write(tmp_path / "a.gguf")
    ran(bench, path, monkeypatch, "--json", rounds=1)
    found = json.loads(capsys.readouterr().out)
    assert len(found["tokens_per_second"]) == 4
    assert all(each > 0 for each in found["tokens_per_second"].values())
    rates = found["tokens_per_second"]
    assert found["ratios"] == {
        "loaded, unused / none loaded": rates["loaded, unused"] / rates["none loaded"],
        "eight / one": rates["eight"] / rates["one"],
    }
