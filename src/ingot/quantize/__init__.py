"""Quantized files: which type each tensor gets."""
