"""The truth: a computation graph interpreted in NumPy.

Weights are decoded to float32 (or float64) and every operation is written as its
definition, one after the other. Slow and obvious on purpose; every other backend is
tested against it, operation by operation and as a whole.
"""

from ingot.backends.reference.run import Cache, Reference

__all__ = ["Cache", "Reference"]
