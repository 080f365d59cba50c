"""Numbers that kernels know enum members by: those of native/kernels/codes.h, one list for all."""

from enum import Enum

from ingot import _native
from ingot.graph.ops import Activation


def code(member: Enum) -> int:
    """The number of a member of an enum of `ingot.graph.ops`."""
    native: Enum = _native.CODES[type(member).__name__][member.name]
    return int(native.value)


def activation_code(kind: Activation | None) -> int:
    """The number of an activation; 0 is none."""
    return 0 if kind is None else 1 + code(kind)
