"""States of recurrent models among sequences that grow, fork, end, and begin with each other.

Whatever happens, the state that a sequence goes on from is that of its own tokens.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingot.errors import CacheFullError
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import CachedSequence, KvCache, Reuse
from ingot.kvcache.sequence_blocks import NO_BLOCK

LAYOUT = KvLayout.of([KvLayer(1, 32, 40)], KvType.F16, [64])  # a window, and a state
STATES = LAYOUT.states[0].group
TOKENS = np.random.default_rng(0).integers(0, 2, 2000).astype(np.int32)


class StateMachine(RuleBasedStateMachine):
    """`memory` is the text whose state each block holds."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = KvCache(LAYOUT, blocks=30, states=9)
        self.memory: dict[int, bytes] = {}
        self.texts: dict[int, tuple[CachedSequence, np.ndarray]] = {}
        self.begun = 0

    def add(self, sequence: CachedSequence, tokens: np.ndarray) -> None:
        self.texts[self.begun] = sequence, tokens
        self.begun += 1

    @rule(beginning=st.integers(0, 3), length=st.integers(1, 200))
    def open(self, beginning: int, length: int) -> None:
        tokens = TOKENS[100 * beginning : 100 * beginning + length]
        sequence = self.cache.open(np.append(tokens, TOKENS[:1]), len(tokens))
        assert sequence.length <= len(tokens)
        self.add(sequence, tokens[: sequence.length])

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), other=st.integers(0, 2), count=st.integers(1, 150))
    def grow(self, data: st.DataObject, other: int, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        sequence, tokens = self.texts[name]
        first = len(tokens)
        try:
            sequence.blocks.grow(count)
        except CacheFullError:
            return
        added = TOKENS[100 * other + first : 100 * other + first + count]
        tokens = np.concatenate([tokens, added])
        table = sequence.blocks.tables[STATES].tolist()
        if first:
            before = table[(first - 1) // BLOCK_TOKENS]
            assert self.memory[before] == tokens[:first].tobytes()
        last = (len(tokens) - 1) // BLOCK_TOKENS
        for run in range(first // BLOCK_TOKENS, last):
            if table[run] != NO_BLOCK:
                self.memory[table[run]] = tokens[: (run + 1) * BLOCK_TOKENS].tobytes()
        self.memory[table[last]] = tokens.tobytes()
        self.texts[name] = sequence, tokens
        self.cache.settle(sequence, tokens, len(tokens))

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.texts)))
        sequence, tokens = self.texts[name]
        try:
            forked, copies = self.cache.fork(sequence)
        except CacheFullError:
            return
        for copy in copies:
            if copy.group == STATES:
                self.memory[copy.target] = self.memory[copy.source]
        self.add(forked, tokens)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def keep_end(self, data: st.DataObject) -> None:
        """For a text that continues differently; what others hold is left alone."""
        sequence, tokens = self.texts[data.draw(st.sampled_from(sorted(self.texts)))]
        tables = [each.blocks.tables[STATES].tolist() for each, _ in self.texts.values()]
        for copy in self.cache.keep_end(sequence, tokens):
            if copy.group == STATES:
                assert all(copy.target != table[-1] for table in tables if table)
                assert self.memory[copy.source] == tokens.tobytes()
                self.memory[copy.target] = self.memory[copy.source]
        self.cache.file_ends()

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence, tokens = self.texts.pop(data.draw(st.sampled_from(sorted(self.texts))))
        self.cache.close(sequence, tokens, len(tokens))

    @rule()
    def clear(self) -> None:
        self.cache.clear()

    @invariant()
    def everyone_has_their_own_state(self) -> None:
        for sequence, tokens in self.texts.values():
            if len(tokens):
                block = int(sequence.blocks.tables[STATES][(len(tokens) - 1) // BLOCK_TOKENS])
                assert self.memory[block] == tokens.tobytes()
                assert not sequence.blocks.can_shrink(len(tokens) - 1)

    def teardown(self) -> None:
        for sequence, _ in self.texts.values():
            self.cache.close(sequence)
        self.cache.clear()
        pool = self.cache.pool
        assert [pool.free(group) for group in range(len(pool.sizes))] == pool.sizes == [30, 9]
        assert self.cache.filed_runs == 0


TestStateMachine = StateMachine.TestCase
StateMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_states_of_a_prompt_are_kept_where_others_may_begin() -> None:
    """Every fourth run, the last whole one, and where the text stands."""
    cache = KvCache(LAYOUT, blocks=30, states=9)
    sequence = cache.open(TOKENS[:400], 400)
    sequence.blocks.grow(400)
    table = sequence.blocks.tables[STATES]
    assert np.flatnonzero(table != NO_BLOCK).tolist() == [3, 7, 11, 12]
    cache.settle(sequence, TOKENS[:400], 400)
    for length, found in ((400, 384), (380, 256), (200, 128), (100, 0)):
        other = np.append(TOKENS[:length], 5).astype(np.int32)
        assert cache.known_runs(other, length) * BLOCK_TOKENS == found


def test_a_state_comes_before_those_for_others() -> None:
    cache = KvCache(LAYOUT, blocks=30, states=2)
    first, second = (cache.open(TOKENS[:400], 400) for _ in range(2))
    first.blocks.grow(100)
    assert (first.blocks.tables[STATES] != NO_BLOCK).tolist() == [False, False, True, True]
    cache.settle(first, TOKENS[:100], 100)
    second.blocks.grow(300)
    assert np.flatnonzero(second.blocks.tables[STATES] != NO_BLOCK).tolist() == [9]


def test_a_tail_is_for_the_text_that_continues_it() -> None:
    """Once: that text writes on in its blocks. A state cannot be taken back to an earlier token."""
    cache = KvCache(LAYOUT, blocks=30, states=9)

    def text(length: int, read: int) -> CachedSequence:
        sequence = cache.open(TOKENS[:length], length)
        assert sequence.reused == read
        sequence.blocks.grow(length - sequence.length)
        cache.settle(sequence, TOKENS[:length], length)
        return sequence

    cache.close(text(75, 0), TOKENS[:75], 75)
    assert cache.filed_runs == 3
    shorter = text(75, 64)  # the logits of the last token are wanted
    longer = text(120, 75)
    again = text(120, 96)
    for sequence in (shorter, longer, again):
        cache.close(sequence, TOKENS[:120], 120)
    text(121, 120)


def test_the_end_of_a_prompt_is_kept_once_and_if_there_is_room() -> None:
    cache = KvCache(LAYOUT, blocks=30, states=2)
    tokens = TOKENS[:40]
    one, two = cache.open(tokens, 40), cache.open(tokens, 40)
    for sequence in (one, two):
        sequence.blocks.grow(40)
        cache.settle(sequence, tokens, 40)
    assert not cache.keep_end(one, tokens), "it has two states, the other one"
    cache.close(two)
    assert {copy.group for copy in cache.keep_end(one, tokens)} == {0, STATES}
    assert not cache.keep_end(one, tokens), "the running step copies it"
    cache.file_ends()
    assert not cache.keep_end(one, tokens), "it is filed"
    assert cache.open(np.append(tokens, TOKENS[:1]), 41).length == 40
    nothing = KvCache(LAYOUT, blocks=30, states=3, reuse=Reuse.NONE)
    alone = nothing.open(tokens, 40)
    alone.blocks.grow(40)
    assert not nothing.keep_end(alone, tokens)


def test_what_was_not_computed_is_no_tail() -> None:
    cache = KvCache(LAYOUT, blocks=30, states=9)
    sequence = cache.open(TOKENS[:50], 50)
    sequence.blocks.grow(20)
    cache.settle(sequence, TOKENS[:50], 50)
    sequence.blocks.grow(5)  # for a step that failed
    cache.close(sequence, TOKENS[:50], 50)
    assert cache.filed_runs == 0


def test_a_run_that_another_text_began_is_not_exactly_one_of_a_prompt() -> None:
    """Its first tokens were generated: a text that comes again must not continue from it."""
    cache = KvCache(LAYOUT, blocks=30, states=9)
    written = cache.open(TOKENS[:10], 10)
    written.blocks.grow(20)
    cache.settle(written, TOKENS[:20], 10)
    cache.close(written, TOKENS[:20], 10)
    reading = cache.open(TOKENS[:40], 40)
    assert reading.reused == 20
    reading.blocks.grow(20)
    cache.settle(reading, TOKENS[:40], 40)
    cache.close(reading, TOKENS[:40], 40)
    assert cache.open(TOKENS[:41], 41, again=True).reused == 0
    assert cache.open(TOKENS[:41], 41).reused == 40
