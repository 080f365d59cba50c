"""KvCache: sequences that share the blocks of their common prefixes. No tensors.

In: the tokens of texts and how many of them were read as a prompt. Out: sequences that begin with
what is in the cache already. It does not know who runs them.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from ingot.arrays import Ints
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.prefix import Node, PrefixTree, run_of
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
    reused: int = field(default=0)  # tokens that it found in the cache
    ahead: int = field(default=0)  # tokens of steps that run ahead (engine/runner.py)

    @property
    def length(self) -> int:
        """Tokens that are computed, or that the running step computes."""
        return self.blocks.length - self.ahead


class KvCache:
    """The pool and the tree of one model. One thread at a time."""

    def __init__(
        self, layout: KvLayout, blocks: int, reuse: Reuse = Reuse.ALL, states: int = 0
    ) -> None:
        self.pool = BlockPool(layout, blocks, states)
        self.reuse = reuse
        self._tree = PrefixTree(self.pool)

    @property
    def shares(self) -> bool:
        """Whether sequences reuse what others have computed."""
        return self.reuse is not Reuse.NONE

    def open(self, tokens: Ints, prompted: int, *, again: bool = False) -> CachedSequence:
        """A sequence for a text, which begins with what the cache holds of it.

        The last token is never reused, because its logits are wanted. A text that comes `again`
        after a preemption reuses only what was computed as it would do itself, so that it continues
        with the same bits.
        """
        found = self._find(tokens, prompted, again=again)
        blocks = SequenceBlocks(self.pool)
        blocks.adopt([node.blocks for node in found])
        node = found[-1] if found else self._tree.root
        self._tree.enter(node)
        return CachedSequence(blocks, node, len(found), blocks.length)

    def known_runs(self, tokens: Ints, prompted: int) -> int:
        """How many runs a sequence for a text would reuse."""
        return len(self._find(tokens, prompted))

    def _find(self, tokens: Ints, prompted: int, *, again: bool = False) -> list[Node]:
        if not self.shares:
            return []
        exactly = again or self.reuse is Reuse.PROMPT
        return self._tree.find(tokens[:-1], prompted, exactly=exactly)

    def settle(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> None:
        """File the runs that are full now, and give back those that left a sliding window."""
        while (sequence.filed + 1) * BLOCK_TOKENS <= sequence.length:
            if self.shares:
                self._file(sequence, tokens, prompted)
            sequence.filed += 1
        sequence.blocks.release_passed()

    def _file(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> None:
        run = run_of(tokens, prompted, sequence.filed)
        node = self._tree.add(sequence.node, run, sequence.blocks.run_blocks(sequence.filed))
        self._tree.enter(node)
        self._tree.leave(sequence.node)
        sequence.node = node

    def fork(self, sequence: CachedSequence) -> tuple[CachedSequence, list[BlockCopy]]:
        """A sequence that continues from the same tokens, and the blocks to copy for it."""
        blocks, copies = sequence.blocks.fork()
        self._tree.enter(sequence.node)
        return CachedSequence(blocks, sequence.node, sequence.filed, blocks.length), copies

    def close(self, sequence: CachedSequence) -> None:
        """Give back its blocks; what is filed can still be reused."""
        sequence.blocks.close()
        self._tree.leave(sequence.node)

    def insert(self, runs: int, first: list[int]) -> CachedSequence:
        """A sequence of `runs` runs whose blocks the caller fills.

        `first` is the first run of each group that there is.
        """
        blocks = SequenceBlocks(self.pool)
        blocks.begin_at(runs * BLOCK_TOKENS, first)
        self._tree.enter(self._tree.root)
        return CachedSequence(blocks, self._tree.root, 0)

    def clear(self) -> None:
        """Forget everything that no sequence holds."""
        self.pool.drop_idle()

    @property
    def filed_runs(self) -> int:
        """How many runs the tree knows."""
        return self._tree.nodes
