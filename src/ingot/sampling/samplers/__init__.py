"""The samplers, one idea per file."""
