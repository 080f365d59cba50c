"""A short run over hostile model files; `make fuzz-models` is the long one."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from fuzz import run_models
from fuzz.hostile_models import make_model, valid_model
from fuzz.run_models import Outcome, Worker, examine, examine_all, refusal, stages, table
from ingot.models import architectures


def failures(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.kind == "failed"]


def test_hostile_models(tmp_path: Path) -> None:
    outcomes = examine_all(155, seed=2, folder=tmp_path)
    assert not failures(outcomes)
    assert {outcome.architecture for outcome in outcomes} == set(architectures())
    assert {outcome.kind for outcome in outcomes} == {"used", "refused"}
    assert {outcome.detail for outcome in outcomes} >= {"GgufError", "ModelError", "TokenizerError"}
    assert f"all{sum(outcome.kind == 'used' for outcome in outcomes):20}" in table(outcomes)


@pytest.mark.oracle
def test_more_hostile_models(tmp_path: Path) -> None:
    assert not failures(examine_all(3000, seed=3, folder=tmp_path))


@pytest.mark.parametrize("architecture", architectures())
def test_what_they_are_made_from_can_be_used(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(valid_model(architecture, Random(1)).craft().bytes())
    refusals = [refusal(stage) for stage in stages(path, context=32)]
    assert len(refusals) > 5
    assert not any(refusals)


def test_files_are_reproducible() -> None:
    files = [make_model(1, number) for number in range(40)]
    assert files == [make_model(1, number) for number in range(40)]
    assert len({data for _, data in files}) == 40
    assert make_model(1, 0) != make_model(2, 0)


def test_an_error_of_another_kind_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_models, "stages", lambda *_, **__: [[].pop])
    outcome = examine(1, 0, tmp_path / "model.gguf")
    assert outcome.kind == "failed"
    assert "IndexError" in outcome.detail


def test_memory_that_grows_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_models, "MOST_GROWTH_MIB", -1)
    outcome = examine(1, 0, tmp_path / "model.gguf")
    assert outcome.kind == "failed"
    assert re.fullmatch(r"memory grew by \d+ MiB", outcome.detail)


# A worker that answers as it should, except for two files.
FRAGILE = """
import json, os, signal, sys, time
for line in sys.stdin:
    number = int(line)
    if number == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 3:
        time.sleep(1000)
    outcome = {"number": number, "architecture": "llama", "kind": "used", "detail": ""}
    print(json.dumps(outcome), flush=True)
"""


def test_a_signal_and_a_hang_are_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Worker) -> "subprocess.Popen[str]":
        command = [sys.executable, "-S", "-c", FRAGILE]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    monkeypatch.setattr(Worker, "_start", start)
    monkeypatch.setattr(run_models, "FILE_SECONDS", 2)
    outcomes = examine_all(5, seed=1, folder=tmp_path)
    assert [outcome.kind for outcome in outcomes] == ["used", "failed", "used", "failed", "used"]
    assert outcomes[1].detail == f"it ended with {-signal.SIGSEGV}"
    assert outcomes[3].detail == "it took more than 2 s"
    assert (tmp_path / "1-3.gguf").read_bytes() == make_model(1, 3)[1]
