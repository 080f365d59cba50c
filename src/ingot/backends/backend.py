"""What the engine asks of a backend, and which one a device's name means."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.adapters import Adapter
from ingot.backends.batch import Batch
from ingot.errors import ConfigError

if TYPE_CHECKING:
    from ingot.backends.gpu import Device

_GPU = re.compile(r"cuda(?::([0-9]{1,4}))?")  # the GPU of this thread, or one by its number
OnProgress = Callable[[int, int], None]  # how much is done, and how much there is


class Stage(StrEnum):
    """What takes time when a model is opened on a GPU."""

    WEIGHTS = "uploading weights to the GPU"  # bytes
    KERNELS = "compiling kernels"
    STEPS = "capturing steps"


OnOpening = Callable[[Stage, int, int], None]  # a stage, how much is done, how much there is


@dataclass(frozen=True, slots=True)
class Prepared:
    """Kernels made ready (compiled, or read from the disk), and pieces of steps captured."""

    compilations: int = 0
    captures: int = 0
    compilations_after_ready: int = 0  # while a request waited for them
    captures_after_ready: int = 0

    def __add__(self, other: "Prepared") -> "Prepared":
        """Of two programs together."""
        return Prepared(
            self.compilations + other.compilations,
            self.captures + other.captures,
            self.compilations_after_ready + other.compilations_after_ready,
            self.captures_after_ready + other.captures_after_ready,
        )


class Backend(Protocol):
    """A model ready to run."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of one step."""

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""

    def attach(self, slot: int, adapter: Adapter | None) -> None:
        """Keep an adapter in a slot, for the sequences of a batch that name it; None: free it."""

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""


def choose_device(name: str) -> "Device | None":
    """The GPU that a device's name means, None for the CPU; where there is none, say why.

    PyTorch is imported only where a GPU is asked for.
    """
    index = _gpu_index(name)
    if name == "cpu":
        return None
    require_packages(f"device {name!r}")
    from ingot.backends.gpu import find_device  # noqa: PLC0415

    return find_device(index)


def choose_devices(name: str, count: int) -> "list[Device]":
    """So many GPUs: the one that a device's name means, or the first, and those after it."""
    first = _gpu_index(name) or 0
    require_packages(f"device {name!r}")
    from ingot.backends.gpu import find_device  # noqa: PLC0415

    return [find_device(first + number) for number in range(count)]


def count_gpus() -> int:
    """How many GPUs there are; 0 without PyTorch, which this imports."""
    try:
        require_packages("a GPU")
    except ConfigError:
        return 0
    from ingot.backends.gpu import device_count  # noqa: PLC0415

    return device_count()


def _gpu_index(name: str) -> int | None:
    """The number in the name of a device, if there is one; a name of no device is an error."""
    if name in ("cpu", "auto"):
        return None
    found = _GPU.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(
            f"device is {name!r}; it must be one of cpu, cuda, auto, or cuda:0, cuda:1, ... for "
            "one of several GPUs"
        )
    return None if found[1] is None else int(found[1])


def require_packages(asked: str) -> None:
    """Raise an error if what was asked for needs packages that are not here, or do not work."""
    if not all(find_spec(package) for package in ("torch", "triton")):
        raise ConfigError(f"{asked} needs PyTorch and Triton: pip install 'ingot-llm[gpu]'")
    try:
        import_module("ingot.backends.gpu")
    except (ImportError, OSError) as error:  # a library that is missing, a release that is too old
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise ConfigError(
            f"{asked} needs PyTorch and Triton, and they cannot be imported ({first}): "
            "pip install -U 'ingot-llm[gpu]'"
        ) from error
