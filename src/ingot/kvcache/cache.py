"""KvCache: sequences that share what they have in common. No tensors.

Comes in: the tokens of texts and how many of them were read as a prompt. Goes out: sequences
that begin with what is in the cache already. It does not know who runs them.
"""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.prefix import Node, PrefixTree, run_of
from ingot.kvcache.sequence import BlockCopy, Sequence

Ints = NDArray[np.int32]


class Reuse(StrEnum):
    """What a prompt may find in the cache."""

    ALL = "all"  # whatever the engine has read or written, as long as it is there
    PROMPT = "prompt"  # only what was read as a prompt: the same bits as without a cache
    NONE = "none"


@dataclass(slots=True)
class CachedSequence:
    """A sequence and its place in the prefix tree."""

    blocks: Sequence
    node: Node
    filed: int  # runs that are in the tree
    reused: int = field(default=0)  # tokens that were in the cache when it began
    ahead: int = field(default=0)  # tokens of steps that run before those before them are known

    @property
    def length(self) -> int:
        """Tokens it has room for: those computed, and those of the step that runs."""
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
        """Whether texts find in the cache what others have left there."""
        return self.reuse is not Reuse.NONE

    def open(self, tokens: Ints, prompted: int, *, again: bool = False) -> CachedSequence:
        """A sequence for a text, beginning with what is in the cache of it.

        The last token is never found: its logits are wanted. A text that was begun before and
        comes `again` takes only what was computed as it would do itself, so that it goes on
        as if nothing had happened.
        """
        found = self._find(tokens, prompted, again=again)
        blocks = Sequence(self.pool)
        blocks.adopt([node.blocks for node in found])
        node = found[-1] if found else self._tree.root
        self._tree.enter(node)
        return CachedSequence(blocks, node, len(found), blocks.length)

    def known_runs(self, tokens: Ints, prompted: int) -> int:
        """How many runs a sequence for a text would begin with."""
        return len(self._find(tokens, prompted))

    def _find(self, tokens: Ints, prompted: int, *, again: bool = False) -> list[Node]:
        if not self.shares:
            return []
        exactly = again or self.reuse is Reuse.PROMPT
        return self._tree.find(tokens[:-1], prompted, exactly=exactly)

    def settle(self, sequence: CachedSequence, tokens: Ints, prompted: int) -> None:
        """File the runs that are full now and give back those that passed out of a window."""
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
        """A sequence that goes on from the same tokens, and the blocks to copy for it."""
        blocks, copies = sequence.blocks.fork()
        self._tree.enter(sequence.node)
        return CachedSequence(blocks, sequence.node, sequence.filed, blocks.length), copies

    def close(self, sequence: CachedSequence) -> None:
        """Let go of its blocks; what is filed can still be found."""
        sequence.blocks.close()
        self._tree.leave(sequence.node)

    def insert(self, runs: int, first: list[int]) -> CachedSequence:
        """A sequence for so many runs that were computed before, to be filled by the caller.

        `first` is the first run of each group that is there.
        """
        blocks = Sequence(self.pool)
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
