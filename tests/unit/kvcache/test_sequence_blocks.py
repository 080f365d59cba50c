"""SequenceBlocks, one promise at a time: windows, forks, states to come back to, full pools."""

import numpy as np
import pytest

from ingot.errors import CacheFullError
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, BlockPool, SequenceBlocks
from ingot.kvcache.sequence_blocks import NO_BLOCK

WINDOW = KvLayout.of([KvLayer(1, 32, 40), KvLayer(1, 32, 0)], KvType.F16)  # a window, and all
STATES = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16, [64])  # all, and a state
STATE = STATES.states[0].group


def sequence(layout: KvLayout, length: int, *, blocks: int = 8, states: int = 4) -> SequenceBlocks:
    made = SequenceBlocks(BlockPool(layout, blocks, states))
    made.grow(length)
    return made


def free(made: SequenceBlocks) -> list[int]:
    return [made.pool.free(group) for group in range(2)]


def test_states_are_of_no_number_unless_asked_for() -> None:
    assert BlockPool(STATES, 8).sizes == [8, 0]
    with pytest.raises(CacheFullError, match="all 0 states of the cache are in use"):
        sequence(STATES, 1, states=0)


def test_blocks_that_left_the_window_are_given_back_once() -> None:
    made = sequence(WINDOW, 4 * BLOCK_TOKENS)
    for _ in range(2):
        made.release_passed()
        assert made.first_runs == (2, 0)
        assert free(made) == [6, 4]
    assert made.run_blocks(1) == [NO_BLOCK, made.tables[1][1]]
    assert made.run_blocks(2) == [made.tables[0][2], made.tables[1][2]]


def test_a_sequence_can_lose_tokens_as_long_as_it_has_what_they_see() -> None:
    made = sequence(WINDOW, 4 * BLOCK_TOKENS)
    made.release_passed()  # up to position 63, which the tokens up to 103 see
    assert made.can_shrink(4 * BLOCK_TOKENS)
    assert made.can_shrink(103)
    assert not made.can_shrink(102)
    assert made.nearest(102) == 102
    made.shrink(3 * BLOCK_TOKENS)
    assert free(made) == [7, 5]
    made.release_passed()  # the window has moved back, and gives back nothing
    assert made.first_runs == (2, 0)
    made.close()
    assert free(made) == [8, 8]


def test_a_fork_without_room_changes_nothing() -> None:
    made = sequence(WINDOW, 4 * BLOCK_TOKENS + 1, blocks=5)
    made.release_passed()
    assert free(made) == [2, 0]
    with pytest.raises(CacheFullError):
        made.fork()
    assert free(made) == [2, 0]


def test_growing_without_room_changes_nothing() -> None:
    made = sequence(WINDOW, 4 * BLOCK_TOKENS, blocks=5)
    made.release_passed()
    with pytest.raises(CacheFullError):
        made.grow(2 * BLOCK_TOKENS)
    assert (made.length, free(made)) == (4 * BLOCK_TOKENS, [3, 1])


def test_beginning_without_room_changes_nothing() -> None:
    made = SequenceBlocks(BlockPool(WINDOW, 3))
    with pytest.raises(CacheFullError):
        made.begin_at(4 * BLOCK_TOKENS, [2, 0])
    assert free(made) == [3, 3]
    made.begin_at(3 * BLOCK_TOKENS - 1, [2, 0])
    assert (made.length, free(made)) == (3 * BLOCK_TOKENS - 1, [2, 0])
    assert [len(table) for table in made.tables] == [3, 3]


def test_a_sequence_that_was_closed_is_an_empty_one() -> None:
    made = sequence(WINDOW, 4 * BLOCK_TOKENS)
    made.release_passed()
    made.close()
    assert (made.length, made.first_runs, [*map(len, made.tables)]) == (0, (0, 0), [0, 0])
    made.grow(1)
    assert free(made) == [7, 7]
    made.close()
    assert free(made) == [8, 8]


def test_a_state_is_kept_to_come_back_to() -> None:
    made = sequence(STATES, 10)
    own = int(made.tables[STATE][0])
    (copy,) = made.keep_states()
    assert copy == BlockCopy(STATE, own, copy.target)
    made.grow(BLOCK_TOKENS)
    assert [made.can_shrink(length) for length in (9, 10, 11, 42)] == [False, True, False, True]
    assert [made.nearest(length) for length in (9, 10, 20)] == [9, 10, 10]
    made.shrink(10)
    assert made.tables[STATE].tolist() == [copy.target], "its own went on with the other tokens"
    assert free(made) == [7, 3]
    made.drop_states()
    assert free(made) == [7, 3], "it is the sequence's now"
    made.close()
    assert free(made) == [8, 4]


def test_a_state_comes_back_to_its_own_run() -> None:
    made = sequence(STATES, BLOCK_TOKENS + 10)
    before = made.tables[STATE].tolist()
    (copy,) = made.keep_states()
    made.grow(3)
    made.shrink(BLOCK_TOKENS + 10)
    assert made.tables[STATE].tolist() == [before[0], copy.target]


def test_a_state_of_a_full_run_needs_no_copy() -> None:
    made = sequence(STATES, BLOCK_TOKENS)
    own = int(made.tables[STATE][0])
    assert made.keep_states() == []
    made.grow(3)
    assert made.can_shrink(BLOCK_TOKENS)
    made.shrink(BLOCK_TOKENS)
    assert made.tables[STATE].tolist() == [own]
    assert free(made) == [7, 3]


def test_states_that_were_kept_are_given_back() -> None:
    made = sequence(STATES, 10)
    for _ in range(3):
        made.keep_states()
        assert free(made) == [7, 2], "one at a time"
    made.drop_states()
    assert free(made) == [7, 3]
    assert made.nearest(5) == 5
    own = made.tables[STATE].tolist()
    made.keep_states()
    made.shrink(8)  # not where the copy was made
    assert made.tables[STATE].tolist() == own
    made.close()
    assert free(made) == [8, 4]


def test_without_room_for_a_state_none_is_kept() -> None:
    made = sequence(STATES, 10, states=1)
    with pytest.raises(CacheFullError, match="states"):
        made.keep_states()
    assert free(made) == [7, 0]
    made.close()
    assert free(made) == [8, 1]


def test_a_fork_shares_full_runs_and_copies_the_last() -> None:
    made = sequence(STATES, 5 * BLOCK_TOKENS + 3, states=8)
    other, copies = made.fork()
    assert other.length == made.length
    assert [copy.group for copy in copies] == [0, STATE]
    for group, copy in enumerate(copies):
        assert (copy.source, copy.target) == (made.tables[group][5], other.tables[group][5])
        np.testing.assert_array_equal(made.tables[group][:5], other.tables[group][:5])
    made.close()
    assert free(other) == [2, 5], "six runs; of the states the fourth, the fifth and its own"
    other.close()
    assert free(other) == [8, 8]
