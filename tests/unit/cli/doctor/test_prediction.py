"""Predictions of speed: from made-up calibrations, and calibrations kept in a file."""

import json
from pathlib import Path

import numpy as np
import pytest

from ingot import _native
from ingot.cli.doctor import calibration as calibrations
from ingot.cli.doctor.calibration import (
    Calibration,
    Rows,
    Validity,
    load,
    sample_weights,
    save,
)
from ingot.cli.doctor.prediction import MIXES, SIZES, Reads, fits, reads_of
from ingot.gguf import GgmlType, GgufLoader
from ingot.quant import decode
from tiny_llama import write_tiny_llama

VALIDITY = Validity(cpu="Some CPU", version="1", isa="avx2", threads=2, precision="fast")


def calibration(**rates: float) -> Calibration:
    return Calibration(VALIDITY, read=20e9, read_huge=22e9, operation_seconds=1e-5, rates=rates)


def test_a_step_is_the_bytes_of_each_type_and_the_operations(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "model.gguf")
    with GgufLoader(tmp_path / "model.gguf") as file:
        reads = reads_of(file)
        matrices = [t for t in file.tensors.values() if len(t.shape) > 1]
    assert sum(reads.bytes.values()) == sum(t.nbytes for t in matrices)
    rates = {rows.name: 1e9 for rows in reads.bytes}
    expected = sum(reads.bytes.values()) / 1e9 + reads.operations * 1e-5
    assert reads.tokens_per_second(calibration(**rates)) == pytest.approx(1 / expected)


def test_short_rows_have_a_rate_of_their_own() -> None:
    short, wide = Rows.of(GgmlType.Q8_0, 640), Rows.of(GgmlType.Q8_0, 8960)
    assert (short.name, wide.name) == ("Q8_0/640", "Q8_0")
    assert wide == Rows.wide(GgmlType.Q8_0)
    reads = Reads({short: 1e6, wide: 1e6}, operations=0)
    speed = reads.tokens_per_second(calibration(**{"Q8_0/640": 1e9, "Q8_0": 2e9}))
    assert speed == pytest.approx(1 / 1.5e-3)


def test_rows_are_measured_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Rows] = []

    def rate(rows: Rows, *_: object) -> float:
        measured.append(rows)
        return 1e9

    monkeypatch.setattr(calibrations, "_rate", rate)
    found = calibration(Q4_K=5e9)
    wanted = [Rows.wide(GgmlType.Q4_K), Rows.of(GgmlType.Q4_K, 512)] * 2
    found.measure_rows(wanted)
    assert measured == [Rows.of(GgmlType.Q4_K, 512)]
    assert found.rates == {"Q4_K": 5e9, "Q4_K/512": 1e9}


def test_a_type_that_was_not_measured_has_no_prediction(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "model.gguf")
    with GgufLoader(tmp_path / "model.gguf") as file:
        assert reads_of(file).tokens_per_second(calibration(Q2_K=1e9)) is None


def test_larger_models_are_slower_and_fit_later() -> None:
    found = fits(calibration(Q4_K=10e9, Q6_K=10e9, Q8_0=10e9), 16 << 30)
    assert len(found) == len(SIZES) * len(MIXES)
    by_name = {(fit.size, fit.mix): fit for fit in found}
    assert by_name["8B", "Q4_K_M"].fits
    assert not by_name["32B", "Q4_K_M"].fits
    small, large = by_name["8B", "Q4_K_M"], by_name["8B", "Q8_0"]
    assert small.bytes < large.bytes
    assert small.tokens_per_second is not None
    assert large.tokens_per_second is not None
    assert small.tokens_per_second > large.tokens_per_second
    # 8e9 weights of 8.5 bits at 10 GB/s, and 32 layers of operations.
    assert large.tokens_per_second == pytest.approx(1 / (0.85 + 32 * 7 * 1e-5))
    experts = by_name["30B, 3B active", "Q4_K_M"]
    assert experts.tokens_per_second is not None
    assert experts.tokens_per_second > small.tokens_per_second
    assert experts.bytes > small.bytes


def test_a_gpu_has_a_column_that_depends_on_its_memory_alone() -> None:
    rates = calibration(Q4_K=10e9, Q6_K=10e9, Q8_0=10e9)
    without = fits(rates, 16 << 30)
    assert {fit.fits_gpu for fit in without} == {None}
    with_gpu = {(fit.size, fit.mix): fit for fit in fits(rates, 16 << 30, 64 << 30)}
    large, larger = with_gpu["70B", "Q4_K_M"], with_gpu["70B", "Q8_0"]
    assert (large.fits, large.fits_gpu, larger.fits_gpu) == (False, True, False)
    assert [(fit.fits, fit.tokens_per_second) for fit in with_gpu.values()] == [
        (fit.fits, fit.tokens_per_second) for fit in without
    ]
    small = fits(rates, 16 << 30, 8 << 30)
    assert [fit.size for fit in small if fit.fits_gpu] == [
        *("0.5B", "0.5B", "1.5B", "1.5B", "3B", "3B"),
        "8B",
    ]
    assert not any(fit.fits_gpu for fit in fits(rates, 16 << 30, 0))


def test_a_calibration_is_kept_for_its_machine(tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "calibration.json"
    assert load(kept, VALIDITY) is None
    assert save(kept, calibration(Q4_K=12e9)) is None
    assert load(kept, VALIDITY) == calibration(Q4_K=12e9)
    other = Validity(cpu="Some CPU", version="1", isa="avx2", threads=4, precision="fast")
    assert load(kept, other) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"validity": {}}),
        json.dumps(
            {
                "validity": {name: getattr(VALIDITY, name) for name in Validity.__slots__},
                "read": -1.0,
                "read_huge": None,
                "operation_seconds": 1e-5,
                "rates": {},
            }
        ),
    ],
)
def test_a_damaged_file_is_measured_again(tmp_path: Path, text: str) -> None:
    kept = tmp_path / "calibration.json"
    kept.write_text(text)
    assert load(kept, VALIDITY) is None


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert save(tmp_path / "file" / "calibration.json", calibration()) is not None


@pytest.mark.parametrize(
    "kind", [kind for kind in GgmlType if _native.has_linear(kind)], ids=lambda kind: kind.name
)
def test_sample_weights_are_normal_numbers(kind: GgmlType) -> None:
    values = decode(sample_weights(kind, 512).reshape(-1), kind)
    assert np.isfinite(values).all()
    least = np.abs(values[values != 0]).min()
    assert least > np.finfo(np.float32).tiny
