"""Blocks are never lost, never shared, and come back when a window passes over them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.errors import CacheFullError
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockPool, SequenceBlocks

LAYOUT = KvLayout.of([KvLayer(2, 64, 0), KvLayer(2, 64, 96), KvLayer(1, 32, 0)], KvType.F16)


def test_layers_that_keep_the_same_positions_share_blocks() -> None:
    assert [group.window for group in LAYOUT.groups] == [0, 96]
    assert [place.group for place in LAYOUT.places] == [0, 1, 0]
    first = 2 * 2 * 64 * 2 * BLOCK_TOKENS
    assert LAYOUT.places[2].offset == first
    assert LAYOUT.groups[0].block_bytes == first + 2 * 1 * 32 * 2 * BLOCK_TOKENS


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200) | st.none()), max_size=60))
def test_blocks_against_a_plain_model(steps: list[tuple[int, int | None]]) -> None:
    """Sequences grow and end at random; a set of held blocks per group is the model."""
    pool = BlockPool(LAYOUT, blocks=24)
    sequences: dict[int, SequenceBlocks] = {}
    for which, tokens in steps:
        if tokens is None:
            if which in sequences:
                sequences.pop(which).close()
        else:
            sequence = sequences.setdefault(which, SequenceBlocks(pool))
            before = sequence.length, [pool.free(group) for group in range(2)]
            try:
                sequence.grow(tokens)
                tables = sequence.tables
            except CacheFullError:
                assert before == (sequence.length, [pool.free(group) for group in range(2)])
            else:
                assert all(len(table) * BLOCK_TOKENS >= sequence.length for table in tables)
                sequence.release_passed()
        for group, window in enumerate((0, 96)):
            held = []
            for sequence in sequences.values():
                table = sequence.tables[group]
                gone = max(0, sequence.length - window + 1) // BLOCK_TOKENS if window else 0
                held += table[gone:].tolist()
            assert len(held) == len(set(held)), "a block has two owners"
            assert len(held) + pool.free(group) == 24, "a block is lost"
    for sequence in sequences.values():
        sequence.close()
    assert [pool.free(group) for group in range(2)] == [24, 24]


def test_a_full_pool_says_so() -> None:
    pool = BlockPool(LAYOUT, blocks=1)
    SequenceBlocks(pool).grow(BLOCK_TOKENS)
    with pytest.raises(CacheFullError, match="all 1 blocks"):
        SequenceBlocks(pool).grow(1)
