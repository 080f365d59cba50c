"""Device memory in a few large pools, asked for once and handed out piece by piece."""

from dataclasses import dataclass, field

import torch

from ingot.errors import MemoryShortageError

_ALIGNMENT = 256


def aligned(size: int) -> int:
    """Bytes that a piece of that size takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def require(needed: int, free: int, remedy: str = "") -> None:
    """Refuse, with numbers, what the device cannot hold; `remedy` is the first thing to do."""
    if needed > free:
        raise MemoryShortageError(
            f"the model takes {needed / 2**20:.0f} MiB of device memory, and {free / 2**20:.0f} "
            f"MiB are free: {remedy}choose a smaller context or cache, a smaller model or "
            "device='cpu'"
        )


@dataclass(slots=True)
class DeviceMemory:
    """The pools of one backend; `allocations` counts what was asked of the device."""

    device: torch.device
    allocations: int = 0
    allocated: int = 0

    def pool(self, size: int) -> "MemoryPool":
        """A pool of that many bytes."""
        self.allocations += 1
        self.allocated += size
        return MemoryPool(torch.zeros(max(size, 1), dtype=torch.uint8, device=self.device))


@dataclass(slots=True)
class MemoryPool:
    """One allocation, handed out from its start."""

    memory: torch.Tensor
    used: int = field(default=0)

    def take(self, size: int) -> torch.Tensor:
        """The next bytes."""
        start = self.used
        self.used += aligned(size)
        assert self.used <= len(self.memory), "the pool was planned too small"
        return self.memory[start : start + size]
