"""Backends run a computation graph: reference (NumPy), cpu (native)."""
