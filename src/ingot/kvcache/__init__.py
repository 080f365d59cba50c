"""The bookkeeping of the paged cache: which block belongs to which sequence."""

from ingot.kvcache.cache import CachedSequence, KvCache, Reuse
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.sequence_blocks import BlockCopy, SequenceBlocks

__all__ = ["BlockCopy", "BlockPool", "CachedSequence", "KvCache", "Reuse", "SequenceBlocks"]
