"""Everything that `ingot doctor` tells, collected: facts, measurements, findings, predictions.

JSON (`--json`); sizes are in bytes, speeds in bytes or tokens per second:

    machine        cpu, cpus, allowed_cpus, cores, cpu_quota, busy, caches, numa_nodes, memory,
                   available, memory_limit, swap_used, huge_pages, gpu_devices; null: not known
    kernels        chosen, best, missing (per compiled instruction set: features this CPU lacks)
    settings       threads, precision
    gpu            null, or name, free_memory, multiprocessors, kernel_cache, kernel_cache_bytes
    calibration    read, read_huge, operation_seconds, rates (by tensor type; Q8_0/640:
                   rows of 640 weights)
    calibrated     whether this run measured it, and where it is kept (null: nowhere, because the
                   machine was busy)
    choices        name, value, decides: the constants of the CPU backend
    input_kinds    per tensor type: what decode and prefill read (floats, words, bytes)
    findings       what, why, remedy
    sizes          size, mix, bytes, fits, fits_gpu (null: no GPU), tokens_per_second (of the CPU)
    model          with -m: path, bytes, disk_bytes_per_second, predicted, measured, ratio
"""

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from ingot import __version__, _native
from ingot.backends.precision import Precision
from ingot.bar import Bar
from ingot.cli.doctor import calibration as calibrations
from ingot.cli.doctor.calibration import Calibration, Validity, decode_seconds
from ingot.cli.doctor.choices import Choice, choices, input_kinds
from ingot.cli.doctor.disk_speed import disk_speed
from ingot.cli.doctor.findings import FileSpeed, Finding, Kernels, Settings, find
from ingot.cli.doctor.gpu_facts import GpuFacts, find_gpu
from ingot.cli.doctor.machine_facts import MachineFacts, network_file_system, read_machine
from ingot.cli.doctor.prediction import MIX_ROWS, Fit, fits, reads_of
from ingot.cli.shared.output import notice
from ingot.config import config
from ingot.engine import LoadedModel
from ingot.errors import ConfigError

_MEASURED_SECONDS = 1.5  # of a model


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """A model's speed in decode: what was predicted, and what it has."""

    path: str
    bytes: int
    disk_bytes_per_second: float | None
    predicted: float | None  # None: a type of its weights has no kernel to measure
    measured: float

    @property
    def ratio(self) -> float | None:
        """The prediction divided by the measurement."""
        return None if self.predicted is None else self.predicted / self.measured


@dataclass(frozen=True, slots=True)
class Report:
    """All that the command tells."""

    machine: MachineFacts
    kernels: Kernels
    settings: Settings
    gpu: GpuFacts | None
    calibration: Calibration
    calibration_path: Path | None  # where it is kept
    measured_now: bool
    choices: list[Choice]
    input_kinds: dict[str, tuple[str, str]]
    findings: list[Finding]
    sizes: list[Fit]
    model: ModelSpeed | None


def diagnose(path: Path | None, *, again: bool) -> Report:
    """Find out everything; `path` is a model to predict and measure."""
    machine, chosen = read_machine(), config()
    needs, compiled = _native.instruction_set_needs(), _native.instruction_sets(False)
    kernels = Kernels(chosen.isa, {n: needs[n] for n in compiled}, _native.cpu_features())
    settings = Settings(chosen.threads, chosen.precision)
    kept = chosen.cache / "calibration.json"
    validity = Validity(machine.cpu, __version__, chosen.isa, chosen.threads, chosen.precision)
    found = None if again else calibrations.load(kept, validity)
    with Bar("measuring this machine", "steps") as bar:
        bar(0, 3)
        calibration = found or calibrations.measure(validity)
        known = set(calibration.rates)
        bar(1, 3)
        calibration.measure_rows(MIX_ROWS)
        bar(2, 3)
        speed = None if path is None else _model_speed(path, calibration)
    measured = found is None or known != set(calibration.rates)
    is_kept = not (measured and machine.is_busy)
    if measured and is_kept and (problem := calibrations.save(kept, calibration)):
        notice(f"warning: the measurement is not kept: {problem}")
    gpu = find_gpu(machine.gpu_devices)
    return Report(
        machine=machine,
        kernels=kernels,
        settings=settings,
        gpu=gpu,
        calibration=calibration,
        calibration_path=kept if is_kept else None,
        measured_now=found is None,
        choices=choices(),
        input_kinds=input_kinds(Precision(chosen.precision)),
        findings=find(
            machine,
            kernels,
            settings,
            huge_page_gain=calibration.huge_page_gain,
            torch=find_spec("torch") is not None and find_spec("triton") is not None,
            gpu=gpu is not None,
            file=None if path is None or speed is None else _file_speed(path, speed),
        ),
        sizes=fits(calibration, machine.available, gpu.free_memory if gpu else None),
        model=speed,
    )


def _model_speed(path: Path, calibration: Calibration) -> ModelSpeed:
    with LoadedModel(path, context=128) as loaded:
        if not loaded.graph.causal:
            raise ConfigError(f"{path} is an encoder, which does not decode: leave out -m")
        reads = reads_of(loaded.file)
        calibration.measure_rows(reads.bytes)
        return ModelSpeed(
            path=str(path),
            bytes=sum(tensor.nbytes for tensor in loaded.file.tensors.values()),
            disk_bytes_per_second=disk_speed(path),
            predicted=reads.tokens_per_second(calibration),
            measured=1 / decode_seconds(loaded, _MEASURED_SECONDS),
        )


def _file_speed(path: Path, speed: ModelSpeed) -> FileSpeed:
    return FileSpeed(speed.bytes, speed.disk_bytes_per_second, network_file_system(path))


def as_json(report: Report) -> dict[str, object]:
    """A report for programs; see the keys above."""
    kernels = report.kernels
    kept = report.calibration_path
    return {
        "machine": asdict(report.machine),
        "kernels": {
            "chosen": kernels.chosen,
            "best": kernels.best,
            "missing": {name: kernels.missing(name) for name in kernels.needs},
        },
        "settings": asdict(report.settings),
        "gpu": report.gpu and asdict(report.gpu),
        "calibration": asdict(report.calibration),
        "calibrated": {"now": report.measured_now, "path": kept and str(kept)},
        "choices": [asdict(choice) for choice in report.choices],
        "input_kinds": {
            name: {"decode": decode, "prefill": prefill}
            for name, (decode, prefill) in report.input_kinds.items()
        },
        "findings": [asdict(finding) for finding in report.findings],
        "sizes": [asdict(fit) for fit in report.sizes],
        "model": report.model and {**asdict(report.model), "ratio": report.model.ratio},
    }
