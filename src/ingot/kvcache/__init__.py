"""The bookkeeping of the paged cache: which block belongs to which sequence."""

from ingot.kvcache.pool import BlockCopy, BlockPool, Sequence

__all__ = ["BlockCopy", "BlockPool", "Sequence"]
