"""KvCache: sequences that share the blocks of their common prefixes. No tensors.

In: the tokens of texts and how many of them were read as a prompt. Out: sequences that begin with
what is in the cache already. It does not know who runs them.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import StrEnum

from ingot.arrays import Ints
from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.prefix import LEAST_PART, MIXED, Found, Node, PrefixTree, Run, run_of
from ingot.kvcache.sequence_blocks import BlockCopy, SequenceBlocks


class Reuse(StrEnum):
    """What a prompt may reuse of the cache."""

    ALL = "all"  # everything that is there, read or generated
    PROMPT = "prompt"  # only what was read as a prompt: the same bits as without reuse
    NONE = "none"


@dataclass(slots=True)
class CachedSequence:
    """A sequence and its place in the prefix tree."""

    blocks: SequenceBlocks
    node: Node
    filed: int  # runs that are in the tree
    reused: int = 0  # tokens that it found in the cache
    ahead: int = 0  # tokens of steps that run ahead (engine/runner.py)
    settled: int = 0  # tokens that were certainly computed
    mixed: int | None = None  # the run that another text began in a different way

    @property
    def length(self) -> int:
        """Tokens that are computed, or that the running step computes."""
        return self.blocks.length - self.ahead


@dataclass(frozen=True, slots=True)
class _KeptEnd:
    """The last run of a prompt, whose blocks the running step copies."""

    node: Node  # after which it comes
    run: Run
    blocks: list[int]


class KvCache:
    """The pool and the tree of one model. One thread at a time."""

    def __init__(
        self, layout: KvLayout, blocks: int, reuse: Reuse = Reuse.ALL, states: int = 0
    ) -> None:
        self.pool = BlockPool(layout, blocks, states)
        self.reuse = reuse
        self._tree = PrefixTree(self.pool)
        # A state is of all tokens up to one: it has no parts that another text could begin with.
        self._has_parts = not any(group.recurrent for group in layout.groups)
        self._ends: list[_KeptEnd] = []
        self.keeps_ends = self.shares and not self._has_parts
        self._has_windows = any(group.window or group.recurrent for group in layout.groups)

    @property
    def shares(self) -> bool:
        """Whether sequences reuse what others have computed."""
        return self.reuse is not Reuse.NONE

    def open(
        self, tokens: Ints, prompted: int, *, again: bool = False, variant: Hashable = ()
    ) -> CachedSequence:
        """A sequence for a text, which begins with what the cache holds of it.

        Texts of another `variant` of the model, with an adapter say, share nothing with it. The
        last token is never reused, because its logits are wanted. A text that comes `again`
        after a preemption reuses only what was computed as it would do itself, so that it continues
        with the same bits.
        """
        found = self._find(tokens, prompted, variant, again=again)
        runs, length = len(found.path), found.length
        node = found.path[-1] if found.path else self._tree.root_of(variant)
        self._tree.enter(node)
        mixed = None
        if found.tail and found.tail.run != run_of(tokens[:length], prompted, runs):
            mixed = runs
        tail = self._tree.take(found.tail) if found.tail else ()
        blocks = SequenceBlocks(self.pool)
        blocks.adopt([each.blocks for each in found.path], length, tail)
        return CachedSequence(blocks, node, runs, length, settled=length, mixed=mixed)

    def reuse_part(
        self, sequence: CachedSequence, tokens: Ints, prompted: int, *, again: bool = False
    ) -> list[BlockCopy]:
        """Go on with the part of another text's run that a sequence has in common with it.

        The sequence was just opened. Returns the blocks to copy before it runs.
        """
        start = sequence.blocks.length
        if not self._has_parts:
            return []
        exactly = again or self.reuse is Reuse.PROMPT
        found = self._tree.find_part(
            sequence.node, tokens[start:-1], prompted - start, exactly=exactly
        )
        if found is None:
            return []
        node, count = found
        sources = list(node.blocks)
        for group, block in enumerate(sources):
            self.pool.share(group, block)  # it must not be taken for its own copy
        try:
            sequence.blocks.grow(count)
        except CacheFullError:
            return []
        finally:
            for group, block in enumerate(sources):
                self.pool.give_back(group, block)
        sequence.reused = sequence.settled = sequence.blocks.length
        if min(node.run.prompted, count) != min(max(prompted - start, 0), count):
            sequence.mixed = sequence.filed
        targets = [int(table[-1]) for table in sequence.blocks.tables]
        return [
            BlockCopy(group, *pair) for group, pair in enumerate(zip(sources, targets, strict=True))
        ]

    def known_runs(self, tokens: Ints, prompted: int, variant: Hashable = ()) -> int:
        """How many runs a sequence for a text would reuse."""
        return len(self._find(tokens, prompted, variant).path)

    def _find(
        self, tokens: Ints, prompted: int, variant: Hashable, *, again: bool = False
    ) -> Found:
        if not self.shares:
            return Found([], None)
        exactly = again or self.reuse is Reuse.PROMPT
        return self._tree.find(
            tokens[:-1], prompted, variant, exactly=exactly, tails=not self._has_parts
        )

    def settle(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> None:
        """File the runs that are full now, and give back those that left a sliding window."""
        while (sequence.filed + 1) * BLOCK_TOKENS <= sequence.length:
            if self.shares:
                self._file(sequence, tokens, prompted)
            sequence.filed += 1
        if self._has_windows:
            sequence.blocks.release_passed()
        sequence.settled = sequence.length

    def _file(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> None:
        node = self._add(sequence, tokens, prompted)
        self._tree.enter(node)
        self._tree.leave(sequence.node)
        sequence.node = node

    def _add(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> Node:
        """File the run after those that are."""
        return self._tree.add(
            sequence.node,
            self._next_run(sequence, tokens, prompted),
            sequence.blocks.run_blocks(sequence.filed),
        )

    def _next_run(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> Run:
        run = run_of(tokens, prompted, sequence.filed)
        return replace(run, prompted=MIXED) if sequence.mixed == sequence.filed else run

    def fork(self, sequence: CachedSequence) -> tuple[CachedSequence, list[BlockCopy]]:
        """A sequence that continues from the same tokens, and the blocks to copy for it."""
        blocks, copies = sequence.blocks.fork()
        self._tree.enter(sequence.node)
        forked = replace(sequence, blocks=blocks, reused=blocks.length, ahead=0, settled=0)
        return forked, copies

    def close(
        self, sequence: CachedSequence, tokens: Ints | None = None, prompted: int = 0
    ) -> None:
        """Give back its blocks; what is filed can still be reused.

        If its tokens are given, those of the last run that were computed are filed, too.
        """
        if tokens is not None and self.shares:
            self._file_end(sequence, tokens, prompted)
        sequence.blocks.close()
        self._tree.leave(sequence.node)

    def _file_end(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> None:
        """File the run that is not full, as a part that can be copied or as a tail."""
        length = min(sequence.settled, sequence.length, len(tokens))
        count = length - sequence.filed * BLOCK_TOKENS
        if self._has_parts:
            if LEAST_PART <= count < BLOCK_TOKENS:
                run = self._next_run(sequence, tokens[:length], prompted)
                self._tree.add_part(sequence.node, run, sequence.blocks.run_blocks(sequence.filed))
        # A state is that of the last token that ran, be it of the text or not.
        elif 0 < count < BLOCK_TOKENS and length == sequence.blocks.length:
            self._add(sequence, tokens[:length], prompted)

    def keep_end(self, sequence: CachedSequence, tokens: Ints) -> list[BlockCopy]:
        """Keep the states after these tokens of a prompt, for a text that continues differently.

        The sequence has read these and no others. Returns the blocks to copy before it runs, none
        if there is no room; `file_ends` files them.
        """
        if not self.keeps_ends or len(tokens) % BLOCK_TOKENS == 0:  # full runs are filed anyway
            return []
        run = self._next_run(sequence, tokens, len(tokens))
        kept = any(end.node is sequence.node and end.run == run for end in self._ends)
        if kept or sequence.node.child(run) or not self.pool.has_one_of_each():
            return []
        sources = sequence.blocks.run_blocks(sequence.filed)
        targets = [self.pool.take(group) for group in range(len(sources))]
        self._tree.enter(sequence.node)
        self._ends.append(_KeptEnd(sequence.node, run, targets))
        return [
            BlockCopy(group, *pair) for group, pair in enumerate(zip(sources, targets, strict=True))
        ]

    def file_ends(self) -> None:
        """File the ends of prompts that were copied."""
        for end in self._ends:
            self._tree.add(end.node, end.run, end.blocks)
            for group, block in enumerate(end.blocks):
                self.pool.give_back(group, block)
            self._tree.leave(end.node)
        self._ends = []

    def insert(self, runs: int, first: list[int], variant: Hashable = ()) -> CachedSequence:
        """A sequence of `runs` runs whose blocks the caller fills.

        `first` is the first run of each group that there is; `variant` is as in `open`.
        """
        blocks = SequenceBlocks(self.pool)
        blocks.begin_at(runs * BLOCK_TOKENS, first)
        root = self._tree.root_of(variant)
        self._tree.enter(root)
        return CachedSequence(blocks, root, 0)

    def clear(self) -> None:
        """Forget everything that no sequence holds."""
        self.pool.drop_idle()

    @property
    def filed_runs(self) -> int:
        """How many runs the tree knows."""
        return self._tree.nodes
