"""From logits to a token."""

from ingot.sampling.draw import choose

__all__ = ["choose"]
