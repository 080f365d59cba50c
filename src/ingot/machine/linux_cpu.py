"""The CPU as Linux describes it, in files under /proc and /sys (`root` is another place in tests).

On x86, /proc/cpuinfo names the CPU. On ARM, it has the numbers of its cores; the board is named by
the device tree or, on servers, by the firmware. A core alone does not tell the speed of a machine,
so the name on ARM has the board and the highest frequency, too.
"""

import re
from collections import Counter
from pathlib import Path

from ingot.machine.arm_cores import core_name
from ingot.machine.cpu import Cache, Cpu
from ingot.machine.cpu_topology import listed, physical_cores

_CPUS = "sys/devices/system/cpu"
_BOARDS = ("proc/device-tree/model", "sys/class/dmi/id/product_name")


def read_cpu(root: Path) -> Cpu:
    """The CPU of this machine."""
    cpuinfo = _text(root / "proc/cpuinfo")
    return Cpu(
        _arm_name(root, cpuinfo) or _field(cpuinfo, "model name"),
        _cores(cpuinfo) or len(physical_cores(root)) or None,
        _caches(root),
    )


def _arm_name(root: Path, cpuinfo: str) -> str | None:
    """The cores, their frequency and the board; None on other CPUs."""
    makers, parts = (
        [int(number, 16) for number in re.findall(rf"^CPU {word}\s*:\s*(0x\w+)$", cpuinfo, re.M)]
        for word in ("implementer", "part")
    )
    if not makers or len(makers) != len(parts):
        return None
    cores = Counter(map(core_name, makers, parts))
    names = [f"{count}x {core}" for core, count in cores.items()] if len(cores) > 1 else [*cores]
    boards = (_text(root / file).strip("\0\n ") for file in _BOARDS)
    speeds = (_text(file).strip() for file in root.glob(f"{_CPUS}/cpu*/cpufreq/cpuinfo_max_freq"))
    kilohertz = max((int(speed) for speed in speeds if speed.isdigit()), default=0)
    speed = f"{kilohertz / 1e6:.2f} GHz" if kilohertz else ""
    return ", ".join(filter(None, [next(filter(None, boards), ""), *names, speed]))


def _cores(cpuinfo: str) -> int | None:
    sockets = re.findall(r"^physical id\s*:\s*(\d+)$", cpuinfo, re.M)
    cores = re.findall(r"^core id\s*:\s*(\d+)$", cpuinfo, re.M)
    return len(set(zip(sockets, cores, strict=True))) if len(sockets) == len(cores) > 0 else None


def _caches(root: Path) -> tuple[Cache, ...]:
    found = []
    for index in sorted((root / _CPUS / "cpu0/cache").glob("index[0-9]*")):
        level, size = _text(index / "level").strip(), _text(index / "size").strip()
        is_data = _text(index / "type").strip() != "Instruction"
        if level.isdigit() and re.fullmatch(r"\d+K", size) and is_data:
            sharing = len(listed(_text(index / "shared_cpu_list"))) or 1
            found.append(Cache(int(level), int(size[:-1]) * 1024, sharing))
    return tuple(found)


def _field(cpuinfo: str, name: str) -> str | None:
    found = re.search(rf"^{name}\s*:\s*(.+)$", cpuinfo, re.M)
    return found[1].strip() if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
