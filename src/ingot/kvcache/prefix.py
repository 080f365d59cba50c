"""PrefixTree: which prefixes of texts are in the cache.

A node is a run of tokens (one block per group) after the run of its parent; equal prefixes are one
path. Runs are full, except the last ones of texts that have ended: these have no children, and what
they have in common with another text is copied, because that text writes to the rest of the block.

A run is identified by its tokens and by how they were computed: prefill and decode use
different kernels, whose results differ in their last bits. Texts of different variants of the model
(with an adapter, say) have different trees. Nodes hold no blocks: the pool drops the
least recently held blocks when it needs room, and calls the tree back.

States have no parts. With them, what a text had of its last run when it ended is a tail, for the
text that continues it: that text takes its blocks out of the tree and writes on in them.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np

from ingot.arrays import Ints
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.sequence_blocks import NO_BLOCK

LEAST_PART = 4  # tokens of a run that are worth a copy of its block
_MOST_PARTS = 64  # runs, the newest, that are compared with a text
MIXED = -1  # some of a run's tokens were read as a prompt after others were generated
_TOKEN_BYTES = np.dtype(np.int32).itemsize


@dataclass(frozen=True, slots=True)
class Run:
    """The tokens of a run, and how many of them, from the first on, were read as a prompt."""

    tokens: bytes
    prompted: int

    @property
    def length(self) -> int:
        """How many tokens it has."""
        return len(self.tokens) // _TOKEN_BYTES


def run_of(tokens: Ints, prompted: int, index: int) -> Run:
    """A run of a text whose first `prompted` tokens were read as a prompt."""
    start = index * BLOCK_TOKENS
    piece = tokens[start : start + BLOCK_TOKENS]
    return Run(piece.tobytes(), min(max(prompted - start, 0), len(piece)))


@dataclass(slots=True, eq=False)
class Node:
    """A run after its parent's; the root has no tokens."""

    parent: "Node | None"
    run: Run
    blocks: list[int]  # one per group, NO_BLOCK if it was dropped
    children: dict[bytes, dict[int, "Node"]] = field(default_factory=dict)  # tokens, prompted
    visitors: int = 0  # sequences whose last full run it is
    tails: int = 0  # of the children, those that are tails

    def child(self, run: Run) -> "Node | None":
        """The node of exactly this run."""
        return self.children.get(run.tokens, {}).get(run.prompted)


@dataclass(frozen=True, slots=True)
class Found:
    """The full runs of a prefix, and its tail if there is one."""

    path: list[Node]
    tail: Node | None

    @property
    def length(self) -> int:
        """How many tokens they have."""
        return len(self.path) * BLOCK_TOKENS + (self.tail.run.length if self.tail else 0)


class PrefixTree:
    """The runs whose blocks the pool keeps."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._roots: dict[Hashable, Node] = {}  # by the variant of the model
        self.nodes = 0

    def root_of(self, variant: Hashable) -> Node:
        """Where the texts of a variant begin; the caller enters it."""
        return self._roots.setdefault(variant, Node(None, Run(b"", 0), []))

    def add(self, parent: Node, run: Run, blocks: Sequence[int]) -> Node:
        """File a run with its blocks; if it is known already, add the blocks it lacks."""
        node = parent.child(run)
        if node is None:
            node = Node(parent, run, [NO_BLOCK] * len(blocks))
            parent.children.setdefault(run.tokens, {})[run.prompted] = node
            parent.tails += run.length < BLOCK_TOKENS
            self.nodes += 1
        for group, block in enumerate(blocks):
            # A block that another node has came from there.
            known = node.blocks[group] != NO_BLOCK or self._pool.is_kept(group, block)
            if block != NO_BLOCK and not known:
                node.blocks[group] = block
                self._pool.keep(group, block, partial(self._forget, node))
        return node

    def find(
        self, tokens: Ints, prompted: int, variant: Hashable, *, exactly: bool, tails: bool
    ) -> Found:
        """The longest path with all the blocks that a sequence with this prefix needs.

        `exactly` asks for runs that were computed as this text would compute them.
        """
        path: list[Node] = []
        best, tail = 0, None
        since = [0] * len(self._pool.layout.groups)  # the run from which on all blocks are there
        for node in self._walk(self._roots.get(variant), tokens, prompted, exactly):
            if node.parent:
                path.append(node)
                for group, block in enumerate(node.blocks):
                    if block == NO_BLOCK:
                        since[group] = len(path)
                if self._suffices(since, len(path) * BLOCK_TOKENS):
                    best, tail = len(path), None
            after = None
            if tails:
                after = self._tail(node, tokens, prompted, len(path), exactly=exactly)
            if after and self._suffices(since, Found(path, after).length):
                best, tail = len(path), after
        return Found(path[:best], tail)

    def _suffices(self, since: Sequence[int], length: int) -> bool:
        """Whether every group has what a token at position `length` looks at."""
        groups = self._pool.layout.groups
        return all(
            first <= group.oldest_run(length) for group, first in zip(groups, since, strict=True)
        )

    def _tail(
        self, node: Node, tokens: Ints, prompted: int, runs: int, *, exactly: bool
    ) -> Node | None:
        """The longest tail after a node that a text begins with, if all its blocks are there."""
        start = runs * BLOCK_TOKENS
        for length in range(min(BLOCK_TOKENS - 1, len(tokens) - start) if node.tails else 0, 0, -1):
            run = run_of(tokens[: start + length], prompted, runs)
            tail = self._child(node, run, exactly)
            if tail and NO_BLOCK not in tail.blocks:
                return tail
        return None

    def take(self, tail: Node) -> list[int]:
        """Take a tail's blocks out of the tree, for a sequence that holds them from now on."""
        blocks = tail.blocks
        for group, block in enumerate(blocks):
            self._pool.claim(group, block)
        tail.blocks = [NO_BLOCK] * len(blocks)
        self._prune(tail)
        return blocks

    def add_part(self, parent: Node, run: Run, blocks: Sequence[int]) -> None:
        """File a run that is not full, unless a longer one begins with it."""
        count = len(run.tokens) // _TOKEN_BYTES
        for tokens, nodes in _newest(parent):
            if tokens.startswith(run.tokens) and any(
                min(node.run.prompted, count) == run.prompted for node in nodes.values()
            ):
                return
        self.add(parent, run, blocks)

    def find_part(
        self, parent: Node, tokens: Ints, prompted: int, *, exactly: bool
    ) -> tuple[Node, int] | None:
        """The run after a node with the most tokens in common with a text, and how many these are.

        The first `prompted` of the tokens are read as a prompt.
        """
        best: tuple[Node, int] | None = None
        most = LEAST_PART - 1
        wanted = tokens[:BLOCK_TOKENS].tobytes()
        for known, nodes in _newest(parent):
            if known[: LEAST_PART * _TOKEN_BYTES] != wanted[: LEAST_PART * _TOKEN_BYTES]:
                continue
            same = _common(known, wanted)
            for node in nodes.values():
                theirs = node.run.prompted
                count = same
                if exactly and min(prompted, same) != min(theirs, same):
                    count = min(prompted, theirs)
                if count > most and NO_BLOCK not in node.blocks:
                    best, most = (node, count), count
        return best

    def enter(self, node: Node) -> None:
        """Keep a node in its place while a sequence may add to it."""
        node.visitors += 1

    def leave(self, node: Node) -> None:
        """The sequence has grown past the node, or ended."""
        node.visitors -= 1
        self._prune(node)

    def _walk(
        self, node: Node | None, tokens: Ints, prompted: int, exactly: bool
    ) -> Iterator[Node]:
        """A root, and the nodes of full runs."""
        for index in range(len(tokens) // BLOCK_TOKENS + 1):
            if node is None:
                return
            yield node
            node = self._child(node, run_of(tokens, prompted, index), exactly)

    def _child(self, node: Node, run: Run, exactly: bool) -> Node | None:
        """The node of a run's tokens; if not `exactly`, however they were computed."""
        others = node.children.get(run.tokens, {})
        return others.get(run.prompted) or next(iter(() if exactly else others.values()), None)

    def _forget(self, node: Node, group: int, _: int) -> None:
        node.blocks[group] = NO_BLOCK
        self._prune(node)

    def _prune(self, node: Node) -> None:
        """Remove nodes without blocks and children."""
        while (
            node.parent
            and not node.visitors
            and not node.children
            and all(block == NO_BLOCK for block in node.blocks)
        ):
            siblings = node.parent.children[node.run.tokens]
            del siblings[node.run.prompted]
            if not siblings:
                del node.parent.children[node.run.tokens]
            node.parent.tails -= node.run.length < BLOCK_TOKENS
            self.nodes -= 1
            node = node.parent
        if not (node.parent or node.visitors or node.children):
            self._roots = {key: root for key, root in self._roots.items() if root is not node}


def _newest(node: Node) -> Iterator[tuple[bytes, dict[int, Node]]]:
    return islice(reversed(node.children.items()), _MOST_PARTS)


def _common(one: bytes, other: bytes) -> int:
    """How many tokens two runs have in common."""
    size = min(len(one), len(other))
    first, second = (np.frombuffer(run[:size], np.int32) for run in (one, other))
    different = np.flatnonzero(first != second)
    return int(different[0]) if len(different) else len(first)
