"""`ingot doctor` on this machine, with less time for each measurement."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_runs import Run

from ingot import _native
from ingot.cli.doctor import calibration, report
from ingot.cli.doctor.choices import choices
from ingot.cli.doctor.gpu_facts import GpuFacts
from ingot.cli.doctor.machine_facts import read_machine
from ingot.config import config
from tiny_llama import write_tiny_llama


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, little memory and one run of each measurement."""
    monkeypatch.setenv("INGOT_THREADS", "1")
    config.cache_clear()
    monkeypatch.setattr(calibration, "_SECONDS", dict.fromkeys(calibration._SECONDS, 0.001))
    monkeypatch.setattr(calibration, "_READ_BYTES", 1 << 20)
    monkeypatch.setattr(calibration, "_ROWS_BYTES", 1 << 20)
    monkeypatch.setattr(report, "_MEASURED_SECONDS", 0.01)
    monkeypatch.setattr(report, "read_machine", lambda: replace(read_machine(), busy=0.0))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_tiny_llama(tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


def test_text_has_every_section(run: Run, model: Path) -> None:
    ran = run("doctor", "-m", model)
    assert (ran.status, ran.err) == (0, "")
    for heading in ("machine", "kernels", "speed", "models that fit", "this model", "what is slow"):
        assert f"\n{heading}\n" in ran.out
    assert "piece_bytes" in ran.out
    assert "measured now" in ran.out
    assert "tokens/s in decode" in ran.out


def test_json_has_what_the_module_documents(run: Run, model: Path) -> None:
    found = json.loads(run("doctor", "-m", model, "--json").out)
    assert set(found) == {
        "machine",
        "kernels",
        "settings",
        "gpu",
        "calibration",
        "calibrated",
        "choices",
        "input_kinds",
        "findings",
        "sizes",
        "model",
    }
    assert found["kernels"]["best"] in found["kernels"]["missing"]
    assert found["kernels"]["missing"]["scalar"] == []
    assert found["calibration"]["read"] > 0
    assert {"Q4_K", "Q6_K", "Q8_0"} <= set(found["calibration"]["rates"])
    assert found["model"]["measured"] > 0
    assert found["model"]["predicted"] > 0
    assert found["model"]["ratio"] == found["model"]["predicted"] / found["model"]["measured"]
    assert all(choice["decides"] for choice in found["choices"])
    assert found["input_kinds"]["F32"] == {"decode": "floats", "prefill": "floats"}


def test_the_sizes_that_fit_a_gpu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "find_gpu", lambda _: None)
    assert "fits GPU" not in run("doctor").out
    assert {fit["fits_gpu"] for fit in json.loads(run("doctor", "--json").out)["sizes"]} == {None}
    gpu = GpuFacts("Some GPU", 64 << 30, 132, "/cache/of/kernels", 0)
    monkeypatch.setattr(report, "find_gpu", lambda _: gpu)
    text = run("doctor").out
    head, *rows = text.partition("models that fit\n")[2].partition("\nwhat is slow")[0].splitlines()
    column = head.index("fits GPU")
    fitting = {tuple(row.split()[:2]): row[column:].split()[0] for row in rows if row[:2] == "70"}
    assert fitting == {("70B", "Q4_K_M"): "yes", ("70B", "Q8_0"): "no"}
    assert "no speed is predicted for a GPU" in rows[-1]
    sizes = json.loads(run("doctor", "--json").out)["sizes"]
    assert [fit["fits_gpu"] for fit in sizes if fit["size"] == "70B"] == [True, False]


def test_the_second_run_uses_what_the_first_has_measured(run: Run, cache: Path) -> None:
    first = json.loads(run("doctor", "--json").out)
    again = json.loads(run("doctor", "--json").out)
    assert (first["calibrated"]["now"], again["calibrated"]["now"]) == (True, False)
    assert again["calibration"] == first["calibration"]
    assert first["model"] is None
    assert Path(first["calibrated"]["path"]) == cache.parent / "calibration.json"
    assert json.loads(run("doctor", "--json", "--again").out)["calibrated"]["now"]


def test_what_a_busy_machine_measures_is_not_kept(
    run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "read_machine", lambda: replace(read_machine(), busy=0.5))
    calibrated = json.loads(run("doctor", "--json").out)["calibrated"]
    assert calibrated == {"now": True, "path": None}
    assert not (cache.parent / "calibration.json").exists()
    assert "not kept: other programs use the CPUs" in run("doctor").out


def test_types_of_a_model_are_added_to_what_is_kept(run: Run, model: Path) -> None:
    before = set(json.loads(run("doctor", "--json").out)["calibration"]["rates"])
    run("doctor", "-m", model)
    after = set(json.loads(run("doctor", "--json").out)["calibration"]["rates"])
    assert after > before


def test_every_number_of_the_native_module_is_explained() -> None:
    assert set(_native.tuning()) <= {choice.name for choice in choices()}


def test_a_forced_instruction_set_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = _native.active_isa()
    monkeypatch.setenv("INGOT_ISA", "scalar")
    config.cache_clear()
    try:
        found = json.loads(run("doctor", "--json").out)
    finally:
        _native.set_isa(usual)
    assert found["kernels"]["chosen"] == "scalar"
    said = [finding["remedy"] for finding in found["findings"]]
    assert ("unset INGOT_ISA" in said) == (found["kernels"]["best"] != "scalar")
