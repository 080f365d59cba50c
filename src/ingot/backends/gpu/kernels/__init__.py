"""Triton kernels, one idea a file. They trust the shapes their launchers give them."""
