"""The bookkeeping of the paged cache: which block belongs to which sequence."""

from ingot.kvcache.pool import BlockPool, Sequence

__all__ = ["BlockPool", "Sequence"]
