"""What a container allows this process, as Linux's control groups of versions 1 and 2 tell it.

In: the files under /proc and /sys/fs/cgroup (`root` is another place in tests). Out: the limit and
what is left of memory, and the quota of CPU time; None if there is no limit, or the system is not
Linux. The tightest group from the process's own up to the root of the tree counts.
"""

import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_NO_LIMIT = 1 << 60  # version 1 writes a huge number if there is no limit
_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of version 2 and version 1
_USES = ("memory.current", "memory.usage_in_bytes")
# Pages of files, which the system drops before a limit stops anything; those that were read twice
# are active. The numbers of version 1 with the groups below it have longer names.
_RECLAIMABLE = (("total_inactive_file", "inactive_file"), ("total_active_file", "active_file"))


def memory_limit(root: Path = _ROOT) -> int | None:
    """Bytes of memory that the container may use."""
    return min((limit for _, limit in _limited(root)), default=None)


def memory_left(root: Path = _ROOT) -> int | None:
    """Bytes that the container may use beyond what it uses now and cannot drop."""
    return min((max(0, limit - _kept(group)) for group, limit in _limited(root)), default=None)


def cpu_quota(root: Path = _ROOT) -> float | None:
    """How many CPUs the container may use, on average."""
    quotas = []
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").strip().partition(" ")
        if not quota:
            quota = str(_number(group / "cpu.cfs_quota_us"))
            period = str(_number(group / "cpu.cfs_period_us"))
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _groups(root: Path, controller: str) -> list[Path]:
    """The folders of this process's control groups, from its own up to the root of the tree."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(",") or not names:
            top = root / "sys/fs/cgroup" / (controller if names else "")
            own = top / path.lstrip("/")
            folders = [own, *(p for p in own.parents if p.is_relative_to(top))]
            if any(folder.is_dir() for folder in folders) and (names or _is_unified(top)):
                return folders
    return []


def _is_unified(top: Path) -> bool:
    return (top / "cgroup.controllers").exists()


def _limited(root: Path) -> Iterator[tuple[Path, int]]:
    """The groups that have a limit of memory, and their limits."""
    for group in _groups(root, "memory"):
        limit = _first(group, _LIMITS)
        if limit is not None and 0 < limit < _NO_LIMIT:
            yield group, limit


def _kept(group: Path) -> int:
    """Bytes that a group uses and that the system cannot drop at once."""
    statistics = dict(re.findall(r"^(\w+) (\d+)$", _text(group / "memory.stat"), re.M))
    droppable = sum(
        next((int(statistics[name]) for name in names if name in statistics), 0)
        for names in _RECLAIMABLE
    )
    return max(0, (_first(group, _USES) or 0) - droppable)


def _first(group: Path, names: tuple[str, ...]) -> int | None:
    """The number in the first of these files that has one."""
    return next((n for name in names if (n := _number(group / name)) is not None), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else None
