"""A kernel with arguments as it is launched: what all cases are made of."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from triton.runtime.jit import MockTensor

EVEN = 4096  # sizes and strides that are multiples of 16
ODD = 7  # numbers that the compiler may know nothing about
REAL = 0.5


class Pointer(MockTensor):
    """Stands for a tensor of any size that begins at a multiple of 16 bytes."""

    @staticmethod
    def ptr_range() -> int:
        return 1 << 40


DOUBLES = Pointer(torch.float64)
FLOATS = Pointer(torch.float32)
HALVES = Pointer(torch.float16)
INTS = Pointer(torch.int32)
LONGS = Pointer(torch.int64)
WORDS = Pointer(torch.uint16)
PAIRS = Pointer(torch.uint32)

_ORDER = "AHEAD"


@dataclass(frozen=True)
class KernelCase:
    """A kernel and one set of arguments, by name."""

    name: str
    kernel: Any
    arguments: Mapping[str, Any]
    warps: int = 4
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked = set(inspect.signature(self.kernel.fn).parameters)
        assert asked - {_ORDER} == set(self.arguments) - {_ORDER}

    def ordered(self, ahead: bool) -> "KernelCase":
        """The same if kernels may start before the one before them has ended, or not."""
        if _ORDER not in self.kernel.arg_names:
            return self
        return replace(self, arguments={**self.arguments, _ORDER: ahead})


def out_of(half: bool) -> Pointer:
    """Halves or floats, as a kernel's output is."""
    return HALVES if half else FLOATS


def optional(there: bool) -> Pointer | None:
    """A tensor that may be missing."""
    return FLOATS if there else None
