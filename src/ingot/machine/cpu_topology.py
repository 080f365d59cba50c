"""Which CPUs are of one physical core, and which of one NUMA node, as Linux tells it.

In: the files under /sys (`root` is another place in tests). Out: sets of CPU numbers; none if the
system does not tell, as macOS and Windows.
"""

from pathlib import Path

_ROOT = Path("/")


def physical_cores(root: Path = _ROOT) -> list[frozenset[int]]:
    """The CPUs of each core: several if it runs several threads at once (SMT)."""
    cores: list[frozenset[int]] = []
    seen: set[int] = set()
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        if int(folder.name.removeprefix("cpu")) in seen:
            continue
        if core := frozenset(listed(_text(folder / "topology/thread_siblings_list"))):
            cores.append(core)
            seen |= core
    return sorted(cores, key=min)


def numa_nodes(root: Path = _ROOT) -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node, by its number; numbers may be missing."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    numbers = sorted(int(folder.name.removeprefix("node")) for folder in folders)
    path = root / "sys/devices/system/node"
    return {
        number: frozenset(listed(_text(path / f"node{number}" / "cpulist"))) for number in numbers
    }


def listed(text: str) -> list[int]:
    """The numbers of a list like `0-3,8`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found += range(int(first), int(last or first) + 1)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
