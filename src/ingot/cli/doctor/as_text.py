"""`ingot doctor` as text: sections of facts and tables. Nothing is computed here."""

from collections.abc import Sequence

from rich.text import Text

from ingot.cli.doctor.calibration import Calibration
from ingot.cli.doctor.findings import Finding, Kernels
from ingot.cli.doctor.machine_facts import MachineFacts
from ingot.cli.doctor.prediction import Fit
from ingot.cli.doctor.report import ModelSpeed, Report
from ingot.cli.shared.output import console, printable, size, write_columns

_HEADING = "bold cyan"


def show(report: Report) -> None:
    """Print a report, the most useful part last."""
    machine = report.machine
    _section("machine", _machine(machine))
    _section("kernels", _kernels(report.kernels))
    _section("speed", _speed(report))
    _heading("choices of the CPU backend")
    write_columns([(c.name, f"{c.value:,}", c.decides) for c in report.choices], right=[1])
    _section("inputs of kernels (decode / prefill)", _input_kinds(report.input_kinds))
    _heading("models that fit")
    _show_sizes(report.sizes, on_gpu=report.gpu is not None)
    if report.model is not None:
        _section("this model", _model(report.model))
    _heading("what is slow")
    _show_findings(report.findings)


def _heading(text: str) -> None:
    console().print(Text(f"\n{text}", _HEADING))


def _section(title: str, facts: Sequence[tuple[str, str]]) -> None:
    _heading(title)
    write_columns([(label, printable(value)) for label, value in facts])


def _machine(machine: MachineFacts) -> list[tuple[str, str]]:
    cores = f", {machine.cores} cores" if machine.cores else ""
    quota = f", quota {machine.cpu_quota:.2g}" if machine.cpu_quota is not None else ""
    caches = ", ".join(
        f"L{c.level} {size(c.bytes)}" + (f" for {c.shared_by}" if c.shared_by > 1 else "")
        for c in machine.caches
    )
    memory = f"{size(machine.memory)}, {size(machine.available)} available"
    if machine.memory_limit is not None:
        memory += f", limit {size(machine.memory_limit)}"
    share = "fast" if machine.system == "Darwin" else "allowed"
    return [
        ("CPU", machine.cpu),
        ("CPUs", f"{machine.allowed_cpus} of {machine.cpus} {share}{cores}{quota}"),
        ("caches", caches or "not known"),
        ("memory", memory),
        ("huge pages", machine.huge_pages or "not known"),
    ]


def _kernels(kernels: Kernels) -> list[tuple[str, str]]:
    rows = [("in use", kernels.chosen)]
    for name in kernels.needs:
        missing = kernels.missing(name)
        rows.append((name, f"this CPU lacks {', '.join(missing)}" if missing else "supported"))
    return rows


def _speed(report: Report) -> list[tuple[str, str]]:
    found: Calibration = report.calibration
    threads = f"with {report.settings.threads} threads"
    rows = [("memory", f"{_gigabytes(found.read)} read {threads}")]
    if found.read_huge is not None:
        rows.append(("", f"{_gigabytes(found.read_huge)} from huge pages"))
    rows += [
        (name, f"{_gigabytes(rate)} of weights in decode") for name, rate in found.rates.items()
    ]
    rows.append(("operation", f"{found.operation_seconds * 1e6:.1f} us each, weights aside"))
    if report.gpu is None:
        rows.append(("GPU", "none"))
    else:
        gpu = report.gpu
        rows.append(("GPU", f"{gpu.name}, {size(gpu.free_memory)} free"))
        rows.append(("kernel cache", f"{gpu.kernel_cache}, {size(gpu.kernel_cache_bytes)}"))
    source = "measured now" if report.measured_now else "measured earlier (--again: measure)"
    place = f"kept in {report.calibration_path}"
    if report.calibration_path is None:
        place = "not kept: other programs use the CPUs"
    rows.append(("calibration", f"{source}, {place}"))
    return rows


def _input_kinds(kinds: dict[str, tuple[str, str]]) -> list[tuple[str, str]]:
    by_kinds: dict[tuple[str, str], list[str]] = {}
    for name, pair in kinds.items():
        by_kinds.setdefault(pair, []).append(name)
    return [(f"{decode} / {prefill}", " ".join(n)) for (decode, prefill), n in by_kinds.items()]


def _show_sizes(sizes: Sequence[Fit], *, on_gpu: bool) -> None:
    gpu = ["fits GPU"] if on_gpu else []
    rows = [["model", "mix", "memory", "fits", *gpu, "decode on the CPU, tokens/s (predicted)"]]
    for fit in sizes:
        speed = f"{fit.tokens_per_second:.1f}" if fit.fits and fit.tokens_per_second else "-"
        fitting = ["yes" if each else "no" for each in (fit.fits, fit.fits_gpu)[: 1 + on_gpu]]
        rows.append([fit.size, fit.mix, size(fit.bytes), *fitting, speed])
    write_columns(rows, right=[2, len(rows[0]) - 1])
    if on_gpu:
        print("fits GPU: all of its layers in free memory; no speed is predicted for a GPU")


def _model(model: ModelSpeed) -> list[tuple[str, str]]:
    disk = model.disk_bytes_per_second
    predicted = "no prediction: a type of its weights has no kernel"
    if model.predicted is not None and model.ratio is not None:
        predicted = f"{model.predicted:.1f} tokens/s ({model.ratio:.2f} of the measurement)"
    return [
        ("file", f"{model.path}, {size(model.bytes)}"),
        ("disk", f"{disk / 1e6:.0f} MB/s" if disk else "not known"),
        ("predicted", predicted),
        ("measured", f"{model.measured:.1f} tokens/s in decode"),
    ]


def _show_findings(findings: Sequence[Finding]) -> None:
    if not findings:
        print("nothing found")
    for finding in findings:
        print(f"- {printable(finding.what)}")
        print(f"    why: {printable(finding.why)}")
        print(f"    do:  {printable(finding.remedy)}")


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s"
