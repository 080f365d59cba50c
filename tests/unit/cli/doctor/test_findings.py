"""Every finding of `ingot doctor`, from made-up facts that cause it and nothing else."""

from dataclasses import replace

import pytest

from ingot.cli.doctor.findings import FileSpeed, Kernels, Settings, find
from ingot.cli.doctor.machine_facts import MachineFacts

GIB = 1 << 30
FINE = MachineFacts(
    system="Linux",
    cpu="Some CPU",
    cpus=8,
    allowed_cpus=8,
    cores=8,
    cpu_quota=None,
    busy=0.0,
    caches=(),
    numa_nodes=1,
    memory=16 * GIB,
    available=12 * GIB,
    memory_limit=None,
    swap_used=0,
    huge_pages="madvise",
    gpu_devices=(),
)
NEEDS = {"scalar": [], "avx2": ["avx2", "fma"], "avx512vnni": ["avx2", "fma", "avx512vnni"]}
KERNELS = Kernels("avx2", NEEDS, ["avx2", "fma"])
SETTINGS = Settings(threads=8, precision="fast")


def found(
    machine: MachineFacts = FINE,
    kernels: Kernels = KERNELS,
    settings: Settings = SETTINGS,
    *,
    gain: float | None = 1.0,
    torch: bool = False,
    gpu: bool = False,
    file: FileSpeed | None = None,
) -> list[str]:
    """What is found, one line each: what, and what to do."""
    findings = find(
        machine, kernels, settings, huge_page_gain=gain, torch=torch, gpu=gpu, file=file
    )
    assert all(finding.why for finding in findings)
    return [f"{finding.what}: {finding.remedy}" for finding in findings]


def test_nothing_is_found_on_a_machine_without_faults() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"allowed_cpus": 8, "cpus": 16}, "8 of 16 CPUs are allowed"),
        ({"cpu_quota": 2.5}, "8 threads share a quota of 2.5 CPUs"),
        ({"cpu_quota": 2.5}, "INGOT_THREADS=3"),
        ({"cpu_quota": 0.5}, "INGOT_THREADS=1"),
        ({"busy": 0.5}, "in 50% of the last 10 s"),
        ({"numa_nodes": 2}, "memory is on 2 NUMA nodes"),
        ({"memory_limit": 4 * GIB}, "4.0 GiB of 16.0 GiB of memory are allowed"),
        ({"swap_used": 3 * GIB}, "3.0 GiB of memory are swapped out"),
        ({"huge_pages": "never"}, "huge pages are off"),
        ({"gpu_devices": ("/dev/nvidia0",)}, "ingot-llm[gpu]"),
    ],
)
def test_a_fault_of_the_machine(fault: dict[str, object], said: str) -> None:
    (one,) = found(replace(FINE, **fault))
    assert said in one


def test_limits_that_limit_nothing_are_not_found() -> None:
    roomy = replace(FINE, cpu_quota=7.5, memory_limit=32 * GIB, swap_used=1 << 20, busy=0.1)
    assert found(roomy) == []


def test_what_is_not_known_is_not_found() -> None:
    nothing = {"busy": None, "swap_used": None, "huge_pages": None}
    assert found(replace(FINE, **nothing), gain=None) == []


def test_the_slow_cores_of_a_mac_are_left_out_on_purpose() -> None:
    assert found(replace(FINE, system="Darwin", cpus=10)) == []


def test_a_build_without_kernels_for_the_cpu() -> None:
    (one,) = found(kernels=Kernels("scalar", {"scalar": []}, ["avx2", "avx512vnni"]))
    assert "no kernels for avx2, avx512vnni" in one


def test_an_instruction_set_that_was_forced() -> None:
    (one,) = found(kernels=replace(KERNELS, chosen="scalar"))
    assert one == "the instruction set is scalar, not avx2: unset INGOT_ISA"


def test_missing_features_say_why_a_set_cannot_run() -> None:
    assert KERNELS.best == "avx2"
    assert KERNELS.missing("avx512vnni") == ["avx512vnni"]
    assert KERNELS.missing("scalar") == []


def test_settings_that_cost_speed() -> None:
    (exact,) = found(settings=replace(SETTINGS, precision="exact"))
    assert "unset INGOT_PRECISION" in exact
    (many,) = found(settings=replace(SETTINGS, threads=12))
    assert "12 threads run on 8 CPUs" in many


def test_huge_pages_that_pay() -> None:
    (one,) = found(gain=1.2)
    assert "20% faster from huge pages" in one
    assert "--weights auto (the default) or repack" in one


def test_no_advice_about_huge_pages_turns_repacked_weights_off() -> None:
    advice = [*found(gain=1.2), *found(replace(FINE, huge_pages="never"))]
    assert len(advice) == 2
    for one in advice:
        assert "--weights read" not in one
        assert "repack" in one
        assert "read only for types that have no such copies" in one


def test_a_gpu_that_works_and_one_that_does_not() -> None:
    with_gpu = replace(FINE, gpu_devices=("/dev/nvidia0",))
    assert found(with_gpu, torch=True, gpu=True) == []
    (one,) = found(with_gpu, torch=True, gpu=False)
    assert "nvidia-smi" in one


def test_a_model_on_a_slow_disk_and_on_a_network() -> None:
    assert found(file=FileSpeed(GIB, 1e9, None)) == []
    assert found(file=FileSpeed(GIB, None, None)) == []
    (slow,) = found(file=FileSpeed(8 * GIB, 100e6, None))
    assert "reads 100 MB/s" in slow
    (far,) = found(file=FileSpeed(GIB, 1e9, "nfs4"))
    assert "network file system (nfs4)" in far
