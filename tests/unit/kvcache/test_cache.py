"""KvCache, one promise at a time: what a text finds of others, exactly and in parts.

The machines (`test_prefix_machine.py`, `test_state_machine.py`) have all of them together.
"""

import numpy as np
import pytest

from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import CachedSequence, KvCache, Reuse

LAYOUT = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16)
STATES = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16, [64])
TEXT = np.arange(10 * BLOCK_TOKENS, dtype=np.int32)


def compute(cache: KvCache, sequence: CachedSequence, length: int, prompted: int) -> CachedSequence:
    """Run the first tokens of the text, as far as they are not in the cache."""
    sequence.blocks.grow(length - sequence.length)
    cache.settle(sequence, TEXT[:length], prompted)
    return sequence


def write(cache: KvCache, length: int, prompted: int) -> None:
    """Read a prompt, generate the rest, and end."""
    sequence = compute(cache, cache.open(TEXT[:length], prompted), length, prompted)
    cache.close(sequence, TEXT[:length], prompted)


def find(cache: KvCache, length: int, prompted: int, **options: bool) -> CachedSequence:
    """A sequence with all that the cache has of it."""
    sequence = cache.open(TEXT[:length], prompted, **options)
    cache.reuse_part(sequence, TEXT[:length], prompted, **options)
    return sequence


def test_a_cache_has_no_states_unless_asked_for() -> None:
    assert KvCache(STATES, 8).pool.sizes == [8, 0]


def test_all_but_the_last_token_is_reused() -> None:
    cache = KvCache(LAYOUT, 8)
    write(cache, BLOCK_TOKENS + 10, BLOCK_TOKENS + 10)
    for length, found in (
        (BLOCK_TOKENS, BLOCK_TOKENS - 1),
        (BLOCK_TOKENS + 1, BLOCK_TOKENS),
        (BLOCK_TOKENS + 4, BLOCK_TOKENS),  # a copy for three tokens is not worth it
        (BLOCK_TOKENS + 5, BLOCK_TOKENS + 4),
        (BLOCK_TOKENS + 10, BLOCK_TOKENS + 9),
        (BLOCK_TOKENS + 11, BLOCK_TOKENS + 10),
        (BLOCK_TOKENS + 12, BLOCK_TOKENS + 10),
    ):
        sequence = find(cache, length, length)
        assert (sequence.length, sequence.reused) == (found, found), length
        cache.close(sequence)


def test_what_was_generated_is_known_too() -> None:
    cache = KvCache(LAYOUT, 8)
    write(cache, 2 * BLOCK_TOKENS, prompted=BLOCK_TOKENS)
    assert cache.known_runs(TEXT[:70], 70) == 2
    assert cache.open(TEXT[:70], 70, again=True).length == BLOCK_TOKENS
    exact = KvCache(LAYOUT, 8, Reuse.PROMPT)
    write(exact, 2 * BLOCK_TOKENS, prompted=BLOCK_TOKENS)
    assert exact.known_runs(TEXT[:70], 70) == 1


@pytest.mark.parametrize("prompted", [BLOCK_TOKENS, BLOCK_TOKENS + 5])
def test_a_text_that_comes_again_finds_all_of_itself(prompted: int) -> None:
    cache = KvCache(LAYOUT, 8)
    write(cache, BLOCK_TOKENS + 10, prompted)
    sequence = find(cache, BLOCK_TOKENS + 10, prompted, again=True)
    assert sequence.length == BLOCK_TOKENS + 9
    compute(cache, sequence, 2 * BLOCK_TOKENS, prompted)
    cache.close(sequence)
    assert cache.open(TEXT[:70], prompted, again=True).length == 2 * BLOCK_TOKENS


def test_a_part_is_not_taken_for_its_own_copy() -> None:
    cache = KvCache(LAYOUT, blocks=1)
    write(cache, 10, 10)
    sequence = cache.open(TEXT[:10], 10)
    assert cache.reuse_part(sequence, TEXT[:10], 10) == []
    assert (sequence.length, cache.filed_runs) == (0, 1)
    cache.close(sequence)
    assert cache.pool.available(0) == 1


def test_nothing_is_reused_of_a_cache_that_does_not_share() -> None:
    cache = KvCache(LAYOUT, 8, Reuse.NONE)
    write(cache, 2 * BLOCK_TOKENS + 10, prompted=70)
    assert (cache.filed_runs, find(cache, 70, 70).length) == (0, 0)


def test_states_have_no_parts() -> None:
    cache = KvCache(STATES, 8, states=4)
    write(cache, 20, 20)
    sequence = cache.open(TEXT[:15], 15)
    assert cache.reuse_part(sequence, TEXT[:15], 15) == []
    assert sequence.length == 0


@pytest.mark.parametrize(("length", "filed"), [(BLOCK_TOKENS, 1), (BLOCK_TOKENS + 1, 2)])
def test_a_tail_has_at_least_a_token(length: int, filed: int) -> None:
    cache = KvCache(STATES, 8, states=4)
    write(cache, length, length)
    assert cache.filed_runs == filed
    assert cache.open(TEXT[:70], 70).length == length


def test_a_tail_that_is_computed_alike_stays_exact() -> None:
    cache = KvCache(STATES, 8, states=4)
    write(cache, 10, 10)
    sequence = cache.open(TEXT[:40], 40)
    assert sequence.reused == 10
    cache.close(compute(cache, sequence, 40, 40))
    exact = cache.open(TEXT[:40], 40, again=True)
    assert exact.length == BLOCK_TOKENS
    cache.close(exact)
    cache.clear()
    pool = cache.pool
    assert [(pool.free(group), pool.available(group)) for group in range(2)] == [(8, 8), (4, 4)]


def test_a_fork_that_has_not_run_leaves_nothing() -> None:
    cache = KvCache(STATES, 8, states=4)
    first = compute(cache, cache.open(TEXT[:1], 1), 1, 1)
    forked, copies = cache.fork(first)
    assert (forked.length, forked.reused, len(copies)) == (1, 1, 2)
    cache.close(forked, TEXT[:1], 1)
    assert cache.filed_runs == 0, "the state was perhaps never copied"
    cache.close(first, TEXT[:1], 1)
    assert cache.filed_runs == 1


def test_runs_that_were_inserted_are_found() -> None:
    cache = KvCache(LAYOUT, 8)
    inserted = cache.insert(2, [0])
    assert (inserted.length, inserted.filed) == (2 * BLOCK_TOKENS, 0)
    cache.settle(inserted, TEXT[: 2 * BLOCK_TOKENS], 2 * BLOCK_TOKENS)
    cache.close(inserted)
    assert cache.open(TEXT[:70], 70, again=True).length == 2 * BLOCK_TOKENS


def test_a_text_keeps_its_place_while_inserted_runs_come_and_go() -> None:
    cache = KvCache(LAYOUT, 8)
    reading = cache.open(TEXT[:70], 70)
    inserted = cache.insert(1, [0])
    cache.settle(inserted, TEXT[:BLOCK_TOKENS] + 1000, BLOCK_TOKENS)
    cache.close(inserted)
    cache.clear()
    assert cache.filed_runs == 0
    cache.close(compute(cache, reading, 70, 70))
    assert cache.known_runs(TEXT[:70], 70) == 2


def test_what_others_need_the_room_of_is_forgotten() -> None:
    cache = KvCache(LAYOUT, blocks=2)
    write(cache, BLOCK_TOKENS + 1, BLOCK_TOKENS + 1)
    assert cache.known_runs(TEXT[:40], 40) == 1
    other = cache.open(TEXT[:70] + 1000, 70)
    other.blocks.grow(2 * BLOCK_TOKENS)
    assert (cache.known_runs(TEXT[:40], 40), cache.filed_runs) == (0, 0)
