"""Which device runs a model: asked for by name, found through PyTorch."""

from dataclasses import dataclass

import torch
from triton import knobs

from ingot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Device:
    """A device and what launches depend on."""

    torch: torch.device
    name: str
    multiprocessors: int
    assembly: bool  # whether kernels may use NVIDIA's instructions by name
    ahead: bool  # whether a kernel may start before the one in front of it has ended

    @property
    def interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, on the CPU."""
        return bool(self.torch.type == "cpu")

    def order(self) -> dict[str, bool]:
        """How the kernels of a generation follow each other (see `kernels.order`)."""
        return {"AHEAD": True, "launch_pdl": True} if self.ahead else {"AHEAD": False}

    def free_memory(self) -> int:
        """Bytes that can be asked for."""
        if self.interpreted:
            return 1 << 34
        give_back()
        free, _ = torch.cuda.mem_get_info(self.torch)
        return int(free)


def give_back() -> None:
    """Let others have what PyTorch keeps of models that are closed."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def imagined_device() -> Device:
    """One that is not here, to plan for: without memory, as wide as a large card."""
    return Device(torch.device("meta"), "a GPU", 132, assembly=False, ahead=False)


def has_gpu() -> bool:
    """Whether there is a GPU, or the interpreter to stand in for it."""
    return bool(knobs.runtime.interpret or torch.cuda.is_available())


def find_device() -> Device:
    """The GPU; in Triton's interpreter (TRITON_INTERPRET=1) the CPU stands in for it."""
    if knobs.runtime.interpret:
        return Device(torch.device("cpu"), "Triton's interpreter", 4, assembly=False, ahead=False)
    if not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but PyTorch finds no GPU; take device='cpu'")
    device = torch.device("cuda", torch.cuda.current_device())
    properties = torch.cuda.get_device_properties(device)
    nvidia = torch.version.hip is None
    return Device(
        device,
        properties.name,
        properties.multi_processor_count,
        assembly=nvidia and properties.major >= 8,
        ahead=nvidia and properties.major >= 9,
    )
