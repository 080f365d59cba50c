"""Which parts of a block a sequence leaves for others, and finds."""

import numpy as np

from ingot.engine.sequence import TokenSequence
from ingot.graph import KvLayer
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, KvCache, Reuse

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


def test_latents_are_expanded_if_it_pays() -> None:
    """A few tokens after many would expand those for nothing."""
    cache = KvCache(LAYOUT, 60)
    assert computed(cache, list(range(320))).blocks.expanded
    for count, expanded in ((191, False), (192, True)):
        more, _ = opened(cache, [*range(320), *[7] * count])
        assert (more.computed, more.blocks.expanded) == (320, expanded)


def test_a_preempted_text_keeps_the_form_of_its_attention() -> None:
    cache = KvCache(LAYOUT, 40)
    computed(cache, list(range(64)))
    few, _ = opened(cache, [*range(64), *[7] * 150])
    few.close()
    few.reuse = False
    few.open(cache)
    assert (few.computed, few.blocks.expanded) == (0, False)
    long, _ = opened(cache, [8] * 200)
    copy, _ = long.fork()
    assert copy.blocks.expanded
    heir = TokenSequence(long.tokens, reuse=False)
    heir.append(9)
    heir.share(long)
    heir.close()
    heir.open(cache)
    assert (heir.computed, heir.blocks.expanded) == (0, True)
    few, _ = opened(cache, [5] * 20)
    heir = TokenSequence(few.tokens, reuse=False)
    heir.extend([9] * 300)
    heir.share(few)
    heir.close()
    heir.open(cache)
    assert not heir.blocks.expanded


def test_what_promises_equal_bits_is_not_expanded() -> None:
    for reuse, expanded in ((Reuse.ALL, True), (Reuse.PROMPT, False), (Reuse.NONE, False)):
        sequence, _ = opened(KvCache(LAYOUT, 9, reuse=reuse), list(range(200)))
        assert sequence.blocks.expanded is expanded
