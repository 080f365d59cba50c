"""Sequences that come, grow, slide and go, against a cache that remembers who wrote what.

Whatever happens, a position that a later token can still see holds what its own sequence, or
the one it was forked from, wrote there, no block is lost, and none that is still written to has
two owners.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingot.errors import CacheFullError
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockPool, SequenceBlocks

WINDOWS = (0, 1, 40, 96)
BLOCKS = 20
LAYOUT = KvLayout.of([KvLayer(1, 32, window) for window in WINDOWS], KvType.F16)


class CacheMachine(RuleBasedStateMachine):
    """Sequences by number; `memory` is what each slot of each block was last given."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(LAYOUT, BLOCKS)
        self.sequences: dict[int, SequenceBlocks] = {}
        self.memory: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.wrote: dict[int, list[int]] = {}  # who wrote each position of a sequence
        self.started = 0

    def free(self) -> list[int]:
        return [self.pool.free(group) for group in range(len(WINDOWS))]

    @rule()
    def start(self) -> None:
        self.sequences[self.started] = SequenceBlocks(self.pool)
        self.wrote[self.started] = []
        self.started += 1

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sequences)))
        free = self.free()
        try:
            forked, copies = self.sequences[name].fork()
        except CacheFullError:
            assert self.free() == free
            return
        assert forked.length == self.sequences[name].length
        for copy in copies:
            for slot in range(BLOCK_TOKENS):
                if (copy.group, copy.source, slot) in self.memory:
                    content = self.memory[copy.group, copy.source, slot]
                    self.memory[copy.group, copy.target, slot] = content
        self.sequences[self.started] = forked
        self.wrote[self.started] = list(self.wrote[name])
        self.started += 1

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), tokens=st.integers(1, 100))
    def grow(self, data: st.DataObject, tokens: int) -> None:
        """Write tokens, after which old blocks of windows go back, as the engine does."""
        name = data.draw(st.sampled_from(sorted(self.sequences)))
        sequence = self.sequences[name]
        first, free = sequence.length, self.free()
        try:
            sequence.grow(tokens)
            tables = sequence.tables
        except CacheFullError:
            assert sequence.length == first
            assert self.free() == free
            return
        assert sequence.length == first + tokens
        self.wrote[name] += [name] * tokens
        for group, table in enumerate(tables):
            assert table.dtype == "int32"
            for position in range(first, first + tokens):
                block = int(table[position // BLOCK_TOKENS])
                assert 0 <= block < BLOCKS
                self.memory[group, block, position % BLOCK_TOKENS] = name, position
        self.check_visible(name, first)
        sequence.release_passed()

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sequences)))
        sequence = self.sequences.pop(name)
        sequence.close()
        sequence.close()  # closing what is closed gives nothing back twice

    def check_visible(self, name: int, position: int) -> None:
        """All that a token at this position sees is its own sequence's."""
        for group, (window, table) in enumerate(
            zip(WINDOWS, self.sequences[name].tables, strict=True)
        ):
            oldest = max(0, position - window + 1) if window else 0
            for seen in range(oldest, min(position, self.sequences[name].length)):
                block = int(table[seen // BLOCK_TOKENS])
                writer = self.wrote[name][seen]
                assert self.memory[group, block, seen % BLOCK_TOKENS] == (writer, seen)

    @invariant()
    def next_tokens_see_their_own(self) -> None:
        for name, sequence in self.sequences.items():
            self.check_visible(name, sequence.length)

    @invariant()
    def every_block_is_free_or_held(self) -> None:
        for group, window in enumerate(WINDOWS):
            held: list[int] = []
            growing: list[int] = []
            for sequence in self.sequences.values():
                oldest = max(0, sequence.length - window + 1) if window else 0
                table = sequence.tables[group].tolist()
                held += table[oldest // BLOCK_TOKENS :]
                growing += table[sequence.length // BLOCK_TOKENS :]
            assert len(set(growing)) == len(growing)
            assert all(held.count(block) == 1 for block in growing)
            assert len(set(held)) + self.pool.free(group) == BLOCKS

    def teardown(self) -> None:
        for sequence in self.sequences.values():
            sequence.close()
        assert self.free() == [BLOCKS] * len(WINDOWS)


TestCacheMachine = CacheMachine.TestCase
CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
