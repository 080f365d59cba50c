"""The bookkeeping of the paged cache: which block belongs to which sequence."""

from ingot.kvcache.cache import CachedSequence, KvCache, Reuse
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.sequence import BlockCopy, Sequence

__all__ = ["BlockCopy", "BlockPool", "CachedSequence", "KvCache", "Reuse", "Sequence"]
