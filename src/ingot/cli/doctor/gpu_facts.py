"""The GPU of this machine, and the compiled kernels that Triton keeps on the disk.

PyTorch is imported only if it is installed and a device file of a GPU exists, because that takes
seconds.
"""

from dataclasses import dataclass
from pathlib import Path

from ingot.backends.backend import choose_device
from ingot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A GPU that can be used; sizes are in bytes."""

    name: str
    free_memory: int
    multiprocessors: int
    kernel_cache: str  # a folder
    kernel_cache_bytes: int


def find_gpu(device_files: tuple[str, ...]) -> GpuFacts | None:
    """The GPU, or None if there is none that PyTorch can use."""
    if not device_files:
        return None
    try:
        device = choose_device("cuda")
    except ConfigError:
        return None
    if device is None or device.interpreted:
        return None
    from triton import knobs  # noqa: PLC0415

    folder = Path(knobs.cache.dir)
    files = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return GpuFacts(
        device.name, device.free_memory(), device.multiprocessors, str(folder), sum(files)
    )
