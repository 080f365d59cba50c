"""The truth: a computation graph interpreted in NumPy.

Weights are decoded to float32 (or float64) and every operation is written as its
definition, one after the other. Slow and obvious on purpose; every other backend is
tested against it, operation by operation and as a whole.
"""

from ingot.backends.reference import attention, experts, linear, recurrent, rows, streams
from ingot.backends.reference.run import Reference
from ingot.backends.reference.step import Cache

# A family of operations registers what it computes when it is imported.
__all__ = [
    "Cache",
    "Reference",
    "attention",
    "experts",
    "linear",
    "recurrent",
    "rows",
    "streams",
]
