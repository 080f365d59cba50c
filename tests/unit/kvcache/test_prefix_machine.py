"""Texts that come, grow, fork and go through a cache that shares, against one that remembers.

Every slot of every block holds what was last written there: the whole text up to that token,
and how each of its tokens was computed. Whatever happens, what a text sees is its own text; no
block is lost; none that is still written to has two owners.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ingot.errors import CacheFullError
from ingot.graph import KvLayer
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType
from ingot.kvcache import BlockCopy, CachedSequence, KvCache, Reuse

WINDOWS = (0, 40)
BLOCKS = 14
LAYOUT = KvLayout.of([KvLayer(1, 32, window) for window in WINDOWS], KvType.F16)
# Beginnings that texts have in common, in whole runs and in parts of one.
PIECES = [[1] * BLOCK_TOKENS, [2] * BLOCK_TOKENS, [1] * 10, [3] * 50, [1], [2, 3]]


class Text:
    """Tokens, how many of them are a prompt, and what is known of them."""

    def __init__(self, tokens: list[int], prompted: int, sequence: CachedSequence) -> None:
        self.tokens, self.prompted, self.sequence = tokens, prompted, sequence
        self.phases: list[str] = []  # of the tokens in the cache, as they were computed

    def array(self) -> np.ndarray:
        return np.array(self.tokens, np.int32)


class PrefixMachine(RuleBasedStateMachine):
    """Texts by number; `memory` is what each slot of each block was last given."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: KvCache | None = None
        self.texts: dict[int, Text] = {}
        self.memory: dict[tuple[int, int, int], tuple[tuple[int, ...], tuple[str, ...]]] = {}
        self.made = 0

    @precondition(lambda self: self.cache is None)
    @rule(reuse=st.sampled_from(list(Reuse)))
    def begin(self, reuse: Reuse) -> None:
        self.cache = KvCache(LAYOUT, BLOCKS, reuse)

    @precondition(lambda self: self.cache is not None)
    @rule(
        pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
        again=st.booleans(),
        parts=st.booleans(),
    )
    def open(self, pieces: list[list[int]], again: bool, parts: bool) -> None:
        tokens = [token for piece in pieces for token in piece]
        prompted = len(tokens)
        sequence = self.cache.open(np.array(tokens, np.int32), prompted, again=again)
        text = Text(tokens, prompted, sequence)
        assert sequence.length < len(tokens), "the last token's logits are wanted"
        if sequence.length:
            table = sequence.blocks.tables[0]
            last = self.memory[0, int(table[-1]), (sequence.length - 1) % BLOCK_TOKENS]
            assert last[0] == tuple(tokens[: sequence.length])
            text.phases = list(last[1])
            if again or self.cache.reuse is Reuse.PROMPT:
                assert set(text.phases) == {"prompt"}
            assert self.cache.reuse is not Reuse.NONE
        if parts:
            self.reuse_part(text, again=again)
        self.texts[self.made] = text
        self.made += 1

    def reuse_part(self, text: Text, *, again: bool) -> None:
        sequence, start = text.sequence, text.sequence.length
        copies = self.cache.reuse_part(sequence, text.array(), text.prompted, again=again)
        self.copy(copies)
        assert bool(copies) == (sequence.length > start)
        assert sequence.length < len(text.tokens)
        for position in range(start, sequence.length):
            block = int(sequence.blocks.tables[0][position // BLOCK_TOKENS])
            _, phases = self.memory[0, block, position % BLOCK_TOKENS]
            text.phases.append(phases[-1])
        if again or self.cache.reuse is Reuse.PROMPT:
            assert set(text.phases) <= {"prompt"}

    def copy(self, copies: list[BlockCopy]) -> None:
        for copy in copies:
            for slot in range(BLOCK_TOKENS):
                known = self.memory.get((copy.group, copy.source, slot))
                if known:
                    self.memory[copy.group, copy.target, slot] = known

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), count=st.integers(1, 70), new=st.sampled_from([1, 2, 3]))
    def run(self, data: st.DataObject, count: int, new: int) -> None:
        """Compute the next tokens, of the prompt or written now, and settle."""
        text = self.texts[data.draw(st.sampled_from(sorted(self.texts)))]
        sequence, start = text.sequence, text.sequence.length
        if start < text.prompted:
            count = min(count, text.prompted - start)
        else:
            text.tokens += [new] * (start + count - len(text.tokens))
        before = [self.cache.pool.available(group) for group in range(len(WINDOWS))]
        try:
            sequence.blocks.grow(count)
        except CacheFullError:
            assert sequence.length == start
            assert before == [self.cache.pool.available(g) for g in range(len(WINDOWS))]
            return
        phase = "prompt" if start < text.prompted else "written"
        text.phases += [phase] * count
        for position in range(start, start + count):
            known = tuple(text.tokens[: position + 1]), tuple(text.phases[: position + 1])
            for group, table in enumerate(sequence.blocks.tables):
                block = int(table[position // BLOCK_TOKENS])
                self.memory[group, block, position % BLOCK_TOKENS] = known
        back = data.draw(st.integers(0, min(count, 5)))
        if phase == "written" and back < count:  # guesses that were wrong
            sequence.blocks.shrink(start + count - back)
            del text.tokens[start + count - back :], text.phases[start + count - back :]
        self.check(text, start)
        self.cache.settle(sequence, text.array(), text.prompted)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        text = self.texts[data.draw(st.sampled_from(sorted(self.texts)))]
        try:
            sequence, copies = self.cache.fork(text.sequence)
        except CacheFullError:
            return
        self.copy(copies)
        forked = Text(list(text.tokens), text.prompted, sequence)
        forked.phases = list(text.phases)
        self.texts[self.made] = forked
        self.made += 1

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        text = self.texts.pop(data.draw(st.sampled_from(sorted(self.texts))))
        self.cache.close(text.sequence, text.array(), text.prompted)

    @precondition(lambda self: self.cache is not None)
    @rule()
    def clear(self) -> None:
        self.cache.clear()

    def check(self, text: Text, position: int) -> None:
        """All that a token at this position sees is its own text."""
        for group, window in enumerate(WINDOWS):
            oldest = max(0, position - window + 1) if window else 0
            table = text.sequence.blocks.tables[group]
            for seen in range(oldest, min(position, text.sequence.length)):
                known = self.memory[group, int(table[seen // BLOCK_TOKENS]), seen % BLOCK_TOKENS]
                assert known == (tuple(text.tokens[: seen + 1]), tuple(text.phases[: seen + 1]))

    @invariant()
    def texts_see_themselves(self) -> None:
        for text in self.texts.values():
            self.check(text, text.sequence.length)

    @invariant()
    def no_block_is_lost_or_written_by_two(self) -> None:
        if self.cache is None:
            return
        for group, window in enumerate(WINDOWS):
            held: list[int] = []
            growing: list[int] = []
            for text in self.texts.values():
                length = text.sequence.length
                oldest = max(0, length - window + 1) if window else 0
                table = text.sequence.blocks.tables[group].tolist()
                held += table[oldest // BLOCK_TOKENS :]
                growing += table[length // BLOCK_TOKENS :]
            assert all(held.count(block) == 1 for block in growing)
            assert len(set(held)) + self.cache.pool.available(group) == BLOCKS

    def teardown(self) -> None:
        for text in self.texts.values():
            self.cache.close(text.sequence)
        if self.cache:
            self.cache.clear()
            assert [self.cache.pool.free(group) for group in range(len(WINDOWS))] == [BLOCKS] * 2
            assert self.cache.filed_runs == 0


TestPrefixMachine = PrefixMachine.TestCase
PrefixMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_run_that_another_text_began_by_writing_is_no_prompt() -> None:
    cache = KvCache(LAYOUT, BLOCKS, Reuse.ALL)
    written = np.ones(30, np.int32)
    first = cache.open(written[:20], 20)
    first.blocks.grow(30)
    cache.settle(first, written, 20)
    cache.close(first, written, 20)

    prompt = np.ones(BLOCK_TOKENS + 10, np.int32)
    second = cache.open(prompt, len(prompt))
    assert cache.reuse_part(second, prompt, len(prompt))
    assert second.length == 30
    second.blocks.grow(len(prompt) - 30)
    cache.settle(second, prompt, len(prompt))

    assert cache.open(prompt, len(prompt)).length == BLOCK_TOKENS
    assert cache.open(prompt, len(prompt), again=True).length == 0
