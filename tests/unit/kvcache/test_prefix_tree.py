"""PrefixTree, run by run: what is filed, what is counted, and what is taken out again."""

import numpy as np
import pytest

from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockPool, CachedSequence, KvCache, SequenceBlocks
from ingot.kvcache.prefix import Node, PrefixTree, Run, run_of

LAYOUT = KvLayout.of([KvLayer(1, 32, 0)], KvType.F16)


def tokens(*ids: int) -> np.ndarray:
    return np.array(ids, np.int32)


class Tree:
    """A tree with a root, and blocks for its runs."""

    def __init__(self, blocks: int = 8) -> None:
        self.pool = BlockPool(LAYOUT, blocks)
        self.tree = PrefixTree(self.pool)
        self.root = self.tree.root_of(None)
        self.tree.enter(self.root)

    def block(self) -> list[int]:
        return [self.pool.take(0)]

    def add(self, *ids: int, prompted: int) -> Node:
        return self.tree.add(self.root, run_of(tokens(*ids), prompted, 0), self.block())

    def add_part(self, *ids: int, prompted: int) -> None:
        self.tree.add_part(self.root, run_of(tokens(*ids), prompted, 0), self.block())


@pytest.fixture
def filed() -> Tree:
    return Tree()


def test_a_part_that_a_longer_run_begins_with_is_not_filed(filed: Tree) -> None:
    filed.add_part(1, 2, 3, 4, 5, prompted=5)
    filed.add_part(1, 2, 3, prompted=3)
    assert filed.tree.nodes == 1


def test_a_part_that_was_computed_otherwise_is_filed(filed: Tree) -> None:
    filed.add_part(1, 2, 3, 4, 5, prompted=1)
    filed.add_part(1, 2, 3, prompted=3)
    assert filed.tree.nodes == 2


def test_a_part_of_other_tokens_is_filed(filed: Tree) -> None:
    filed.add_part(1, 2, 3, 4, 5, prompted=5)
    filed.add_part(1, 2, 7, prompted=3)
    assert filed.tree.nodes == 2


def test_only_runs_that_are_not_full_are_tails(filed: Tree) -> None:
    filed.add(*range(BLOCK_TOKENS), prompted=0)
    assert filed.root.tails == 0
    filed.add(*range(BLOCK_TOKENS - 1), prompted=0)
    assert filed.root.tails == 1


def test_a_tail_that_is_taken_leaves_the_tree(filed: Tree) -> None:
    tail = filed.add(1, 2, 3, prompted=3)
    blocks = list(tail.blocks)
    filed.pool.give_back(0, blocks[0])  # the text that filed it has ended
    assert filed.tree.take(tail) == blocks
    assert filed.tree.nodes == 0
    assert filed.root.tails == 0
    assert filed.root.child(tail.run) is None
    assert not filed.pool.is_kept(0, blocks[0])


@pytest.mark.parametrize("length", [1, BLOCK_TOKENS - 1])
def test_the_tail_that_a_text_begins_with_is_found(filed: Tree, length: int) -> None:
    tail = filed.add(*range(length), prompted=length)
    text = tokens(*range(BLOCK_TOKENS + 5))
    found = filed.tree.find(text, len(text), None, exactly=True, tails=True)
    assert found.tail is tail
    assert found.length == length
    assert filed.tree.find(text, len(text), None, exactly=True, tails=False).length == 0
    assert filed.tree.find(text + 1, len(text), None, exactly=True, tails=True).length == 0


def test_the_longest_of_several_tails_is_found(filed: Tree) -> None:
    filed.add(0, 1, prompted=2)
    longer = filed.add(0, 1, 2, prompted=3)
    filed.add(0, 1, 9, 9, prompted=4)
    found = filed.tree.find(tokens(0, 1, 2, 3), 4, None, exactly=True, tails=True)
    assert found.tail is longer


def test_part_of_a_run_is_found_if_it_is_worth_a_copy(filed: Tree) -> None:
    node = filed.add(0, 1, 2, 3, 4, 5, prompted=6)
    for text, count in (((0, 1, 2, 3, 9), 4), ((0, 1, 2, 3, 4, 5, 6), 6)):
        found = filed.tree.find_part(filed.root, tokens(*text), len(text), exactly=True)
        assert found == (node, count)
    assert filed.tree.find_part(filed.root, tokens(0, 1, 2, 9), 4, exactly=True) is None


def test_part_of_a_run_is_shorter_if_it_must_be_computed_alike(filed: Tree) -> None:
    node = filed.add(*range(10), prompted=5)
    text = tokens(*range(10))
    assert filed.tree.find_part(filed.root, text, 10, exactly=True) == (node, 5)
    assert filed.tree.find_part(filed.root, text, 10, exactly=False) == (node, 10)
    assert filed.tree.find_part(filed.root, text, 5, exactly=True) == (node, 10)


def test_a_part_that_is_too_short_if_computed_alike_is_not_found(filed: Tree) -> None:
    filed.add(*range(10), prompted=3)
    text = tokens(*range(10))
    assert filed.tree.find_part(filed.root, text, 10, exactly=True) is None


def test_of_parts_that_are_equally_long_the_newest_is_found(filed: Tree) -> None:
    filed.add(0, 1, 2, 3, 4, 8, prompted=6)
    newest = filed.add(0, 1, 2, 3, 4, 9, prompted=6)
    text = tokens(0, 1, 2, 3, 4, 5)
    assert filed.tree.find_part(filed.root, text, 6, exactly=True) == (newest, 5)


def test_parts_are_looked_for_among_the_newest_runs() -> None:
    filed = Tree(blocks=65)
    nodes = [filed.add(*[first] * 6, prompted=6) for first in range(65)]
    for first, expected in ((0, None), (1, (nodes[1], 5)), (64, (nodes[64], 5))):
        text = tokens(*[first] * 5)
        assert filed.tree.find_part(filed.root, text, 5, exactly=True) == expected


def test_the_tokens_of_a_run_that_were_read_as_a_prompt() -> None:
    text = tokens(*range(2 * BLOCK_TOKENS))
    rest = text[BLOCK_TOKENS:].tobytes()
    for prompted, expected in (
        (3, 0),
        (BLOCK_TOKENS, 0),
        (BLOCK_TOKENS + 5, 5),
        (9 * BLOCK_TOKENS, BLOCK_TOKENS),
    ):
        assert run_of(text, prompted, 1) == Run(rest, expected)


def test_a_tail_is_of_no_use_without_the_runs_before(filed: Tree) -> None:
    text = tokens(*range(BLOCK_TOKENS + 5))
    node = filed.add(*range(BLOCK_TOKENS), prompted=BLOCK_TOKENS)
    tail = filed.tree.add(node, run_of(text, len(text), 1), filed.block())
    assert filed.tree.find(text, len(text), None, exactly=True, tails=True).tail is tail
    filed.pool.give_back(0, node.blocks[0])
    filed.pool.drop_idle()
    found = filed.tree.find(text, len(text), None, exactly=True, tails=True)
    assert (found.path, found.tail) == ([], None)


def test_a_run_without_a_block_stays_while_a_sequence_is_there(filed: Tree) -> None:
    node = filed.add(*range(BLOCK_TOKENS), prompted=BLOCK_TOKENS)
    filed.tree.enter(node)
    filed.pool.give_back(0, node.blocks[0])
    filed.pool.drop_idle()
    assert filed.tree.nodes == 1
    filed.tree.leave(node)
    assert filed.tree.nodes == 0
    assert filed.root.tails == 0


def test_variants_end_one_by_one() -> None:
    cache = KvCache(LAYOUT, blocks=8)
    text = tokens(*range(BLOCK_TOKENS + 1))
    for variant in ("first", "second"):
        sequence = cache.open(text, len(text), variant=variant)
        sequence.blocks.grow(len(text))
        if variant == "first":
            cache.settle(sequence, text, len(text))
        cache.close(sequence)
    assert cache.known_runs(text, len(text), "first") == 1
    assert cache.known_runs(text, len(text), "second") == 0


def test_tokens_of_steps_that_run_ahead_are_not_counted(filed: Tree) -> None:
    blocks = SequenceBlocks(filed.pool)
    blocks.grow(5)
    assert CachedSequence(blocks, filed.root, filed=0, ahead=2).length == 3
