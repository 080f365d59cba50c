"""Which device runs a model: asked for by name, found through PyTorch."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from time import perf_counter

import torch
from triton import knobs
from triton.runtime import driver

from ingot.errors import ConfigError

# Of the process, as what it guards is: while a step is captured, PyTorch lets no other thread
# capture one, or give memory back.
CAPTURING = Lock()


@dataclass(frozen=True, slots=True)
class Device:
    """A device and what launches depend on."""

    torch: torch.device
    name: str
    multiprocessors: int
    assembly: bool  # whether kernels may use NVIDIA's instructions by name
    ahead: bool  # whether a kernel may start before the one before it has ended
    shared_memory: int = 1 << 30  # bytes that a program may have; without a device any number

    @property
    def interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, on the CPU."""
        return bool(self.torch.type == "cpu")

    def stages(self, tuned: int, step_bytes: int) -> int:
        """Steps of a loop whose loads are under way: as tuned, or fewer if memory is short.

        A step waits in shared memory: 227 KiB of it on an H200, 99 on gaming cards, 64 on AMD's.
        """
        stages = tuned
        while (
            stages > 1 and step_bytes * (stages if self.ahead else stages - 1) > self.shared_memory
        ):
            stages -= 1
        return stages

    def order(self) -> dict[str, bool]:
        """How the kernels of a generation follow each other (see `kernels.order`)."""
        return {"AHEAD": True, "launch_pdl": True} if self.ahead else {"AHEAD": False}

    def chosen(self) -> AbstractContextManager[object]:
        """Make PyTorch and Triton use this device in a block; every thread has its own choice."""
        return nullcontext() if self.interpreted else torch.cuda.device(self.torch)

    def wait(self) -> None:
        """Until all that this thread has started is done; others may capture steps meanwhile."""
        if not self.interpreted:
            torch.cuda.current_stream(self.torch).synchronize()

    def moment(self) -> "Moment":
        """When the device has done all that this thread has started."""
        if self.interpreted:  # it has
            return Moment(None, perf_counter())
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return Moment(event)

    def free_memory(self) -> int:
        """Bytes that can be asked for."""
        if self.interpreted:
            return 1 << 34
        give_back()
        free, _ = torch.cuda.mem_get_info(self.torch)
        return int(free)


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in the work of a device."""

    event: torch.cuda.Event | None
    clock: float = 0.0  # seconds, in the interpreter

    def wait(self) -> None:
        """Until the device has come to it."""
        if self.event:
            self.event.synchronize()

    def seconds_since(self, earlier: "Moment") -> float:
        """What the device took for the work between two moments that have passed."""
        if self.event and earlier.event:
            return float(earlier.event.elapsed_time(self.event)) / 1e3
        return self.clock - earlier.clock


def give_back() -> None:
    """Let others have what PyTorch keeps of models that are closed, unless a step is captured."""
    if torch.cuda.is_available() and CAPTURING.acquire(blocking=False):
        try:
            torch.cuda.empty_cache()
        finally:
            CAPTURING.release()


def imagined_device() -> Device:
    """One that is not here, to plan for: without memory, as wide as a large card."""
    return Device(torch.device("meta"), "a GPU", 132, assembly=False, ahead=False)


def has_gpu() -> bool:
    """Whether there is a GPU, or the interpreter to stand in for it."""
    return bool(knobs.runtime.interpret or torch.cuda.is_available())


def device_count() -> int:
    """How many GPUs there are; the interpreter stands in for one."""
    return 1 if knobs.runtime.interpret else torch.cuda.device_count()


def find_device(index: int | None = None) -> Device:
    """The GPU of a number, or the one that this thread has chosen: the first, unless it says so.

    In Triton's interpreter (TRITON_INTERPRET=1) the CPU stands in for it.
    """
    if index is not None and has_gpu() and index >= (count := device_count()):
        there = "only cuda:0 is there" if count == 1 else f"there are cuda:0 to cuda:{count - 1}"
        raise ConfigError(
            f"there is no device 'cuda:{index}': {there}. CUDA_VISIBLE_DEVICES (AMD: "
            "HIP_VISIBLE_DEVICES) may hide GPUs, and numbers them anew"
        )
    if knobs.runtime.interpret:
        return Device(torch.device("cpu"), "Triton's interpreter", 4, assembly=False, ahead=False)
    if not has_gpu():
        if torch.version.cuda is None and torch.version.hip is None:
            raise ConfigError(
                f"PyTorch {torch.__version__} is built for the CPU alone: install the build for "
                "your GPU (pytorch.org says how), or take device='cpu'"
            )
        raise ConfigError(
            "PyTorch finds no GPU: look at its driver (nvidia-smi, rocm-smi) and at "
            "CUDA_VISIBLE_DEVICES, or take device='cpu'"
        )
    device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
    properties = torch.cuda.get_device_properties(device)
    nvidia = torch.version.hip is None
    several = torch.cuda.device_count() > 1
    return Device(
        device,
        f"{properties.name} (cuda:{device.index})" if several else properties.name,
        properties.multi_processor_count,
        assembly=nvidia and properties.major >= 8,
        ahead=nvidia and properties.major >= 9,
        shared_memory=driver.active.utils.get_device_properties(device.index)["max_shared_mem"],
    )
