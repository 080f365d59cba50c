"""The CPU of simulated Linux machines: trees of files as /proc and /sys have them; and of a Mac.

tests/systems has a Mac with Apple's CPU and a Windows.
"""

from pathlib import Path

import pytest

from ingot.machine import macos
from ingot.machine.cpu import Cache
from ingot.machine.linux_cpu import read_cpu

CPUS = "sys/devices/system/cpu"


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write files below a folder that stands for /."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def arm(*cores: tuple[str, str], siblings: int = 1, **more: str) -> dict[str, str]:
    """An ARM machine: implementer and part of each CPU, `siblings` of which share a core."""
    cpuinfo = "".join(
        f"processor\t: {cpu}\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd\n"
        f"CPU implementer\t: {maker}\nCPU architecture: 8\nCPU variant\t: 0x4\n"
        f"CPU part\t: {part}\nCPU revision\t: 1\n\n"
        for cpu, (maker, part) in enumerate(cores)
    )
    topology = {}
    for cpu in range(len(cores)):
        first = cpu // siblings * siblings
        listed = f"{first}-{first + siblings - 1}\n"
        topology[f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"] = listed
    return {"proc/cpuinfo": cpuinfo} | topology | more


def test_a_raspberry_pi_5(tmp_path: Path) -> None:
    files = arm(*[("0x41", "0xd0b")] * 4)
    files["proc/cpuinfo"] += "Revision\t: d04170\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n"
    files["proc/device-tree/model"] = "Raspberry Pi 5 Model B Rev 1.0\0"
    files[f"{CPUS}/cpu0/cpufreq/cpuinfo_max_freq"] = "2400000\n"
    files[f"{CPUS}/cpu0/cache/index0/level"] = "1\n"
    files[f"{CPUS}/cpu0/cache/index0/type"] = "Data\n"
    files[f"{CPUS}/cpu0/cache/index0/size"] = "64K\n"
    files[f"{CPUS}/cpu0/cache/index0/shared_cpu_list"] = "0\n"
    files[f"{CPUS}/cpu0/cache/index3/level"] = "3\n"  # of a kernel that does not know its size
    files[f"{CPUS}/cpu0/cache/index3/type"] = "Unified\n"
    cpu = read_cpu(tree(tmp_path, files))
    assert cpu.name == "Raspberry Pi 5 Model B Rev 1.0, Cortex-A76, 2.40 GHz"
    assert cpu.cores == 4
    assert cpu.caches == (Cache(1, 64 << 10, 1),)


@pytest.mark.parametrize(
    ("core", "name"),
    [
        (("0x41", "0xd0c"), "Neoverse-N1"),
        (("0x41", "0xd49"), "Neoverse-N2"),
        (("0x41", "0xd40"), "Neoverse-V1"),
        (("0x41", "0xd4f"), "Neoverse-V2"),
        (("0x41", "0xd03"), "Cortex-A53"),
        (("0x41", "0xd08"), "Cortex-A72"),
        (("0x41", "0xd41"), "Cortex-A78"),
        (("0x61", "0x023"), "Apple M1 Firestorm"),
        (("0xc0", "0xac3"), "AmpereOne"),
        (("0xc0", "0xd0c"), "ARM 0xc0/0xd0c"),
        (("0x99", "0x001"), "ARM 0x99/0x001"),
    ],
)
def test_a_server_has_no_name_but_that_of_its_cores(
    tmp_path: Path, core: tuple[str, str], name: str
) -> None:
    assert read_cpu(tree(tmp_path, arm(core, core))).name == name


def test_kinds_of_cores_are_counted(tmp_path: Path) -> None:
    files = arm(*[("0x41", "0xd05")] * 4, *[("0x41", "0xd0b")] * 2)
    for cpu, kilohertz in enumerate((1_800_000, 2_208_000)):
        files[f"{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = f"{kilohertz}\n"
    cpu = read_cpu(tree(tmp_path, files))
    assert cpu.name == "4x Cortex-A55, 2x Cortex-A76, 2.21 GHz"
    assert cpu.cores == 6


def test_two_machines_with_the_same_cores_differ_by_what_the_firmware_says(tmp_path: Path) -> None:
    """Or one would take the speeds that the other has measured, from a home that both have."""
    product = "sys/class/dmi/id/product_name"
    names = {
        read_cpu(tree(tmp_path / kind, arm(("0x41", "0xd0c")) | {product: f"{kind}\n"})).name
        for kind in ("c6g.xlarge", "Altra Board")
    }
    assert names == {"c6g.xlarge, Neoverse-N1", "Altra Board, Neoverse-N1"}


def test_threads_of_a_core_are_one_core(tmp_path: Path) -> None:
    files = arm(*[("0x43", "0x0af")] * 8, siblings=4)
    assert read_cpu(tree(tmp_path, files)).cores == 2


def test_a_machine_whose_name_is_in_cpuinfo(tmp_path: Path) -> None:
    """The board and the topology are not asked: x86 says it all."""
    cpuinfo = "".join(
        f"processor\t: {cpu}\nmodel name\t: Some CPU 9000\n"
        f"physical id\t: {cpu // 4}\ncore id\t\t: {cpu % 4 // 2}\n\n"
        for cpu in range(8)
    )
    files = {"proc/cpuinfo": cpuinfo, "sys/class/dmi/id/product_name": "Some Laptop\n"}
    cpu = read_cpu(tree(tmp_path, files))
    assert (cpu.name, cpu.cores) == ("Some CPU 9000", 4)


def test_nothing_is_known_without_files(tmp_path: Path) -> None:
    cpu = read_cpu(tmp_path)
    assert (cpu.name, cpu.cores, cpu.caches) == (None, None, ())


def test_a_mac_with_an_intel_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has one kind of core, with two threads each."""
    facts = {
        "hw.physicalcpu": 6,
        "hw.logicalcpu": 12,
        "hw.l1dcachesize": 32 << 10,
        "hw.l2cachesize": 256 << 10,
        "hw.l3cachesize": 12 << 20,
    }
    monkeypatch.setattr(macos, "_fact", facts.get)
    monkeypatch.setattr(macos, "_text_fact", {"machdep.cpu.brand_string": "Some Core"}.get)
    cpu = macos.read_cpu(tmp_path)
    assert (cpu.name, cpu.cores) == ("Some Core", 6)
    assert macos.default_threads() == 6
    assert cpu.caches == (Cache(1, 32 << 10, 2), Cache(2, 256 << 10, 2), Cache(3, 12 << 20, 12))
