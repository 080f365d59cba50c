"""Which parts of a block a sequence leaves for others, and finds."""

import numpy as np

from ingot.engine.sequence import TokenSequence
from ingot.graph import KvLayer
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, KvCache

LAYOUT = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16)


def opened(cache: KvCache, tokens: list[int]) -> tuple[TokenSequence, list[BlockCopy]]:
    sequence = TokenSequence(np.array(tokens, np.int32))
    return sequence, sequence.open(cache)


def computed(cache: KvCache, tokens: list[int]) -> TokenSequence:
    sequence, _ = opened(cache, tokens)
    sequence.blocks.grow(len(tokens) - sequence.computed)
    sequence.settle()
    return sequence


def test_the_end_of_a_text_is_found_by_others() -> None:
    cache = KvCache(LAYOUT, 4)
    computed(cache, list(range(20))).close()
    other, copies = opened(cache, [*range(15), 7, 7])
    assert (other.computed, len(copies)) == (15, 1)
    assert copies[0].source != copies[0].target
    few, copies = opened(cache, [0, 1, 2, 7, 7])
    assert (few.computed, copies) == (0, [])


def test_what_was_cut_off_is_not_found() -> None:
    cache = KvCache(LAYOUT, 4)
    one = computed(cache, list(range(20)))
    one.cut(10)
    one.extend([99] * 10)  # which were not computed
    one.close()
    other, _ = opened(cache, [*range(10), *[99] * 12])
    assert other.computed == 10


def test_a_block_is_not_taken_for_its_own_copy() -> None:
    cache = KvCache(LAYOUT, 1)
    computed(cache, list(range(20))).close()
    other, copies = opened(cache, list(range(20)))
    assert (other.computed, copies) == (0, [])
