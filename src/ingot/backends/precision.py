"""How far the CPU rounds the inputs of matrix products."""

from enum import StrEnum


class Precision(StrEnum):
    """The native module has the same names (native/kernels/codes.h)."""

    EXACT = "exact"  # to 16 bits
    FAST = "fast"  # to 8 bits for formats where this is faster
