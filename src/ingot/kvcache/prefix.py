"""PrefixTree: which prefixes of texts are in the cache.

A node is a full run of tokens (one block per group) after the run of its parent; equal prefixes are
one path. A run is identified by its tokens and by how they were computed: prefill and decode use
different kernels, whose results differ in their last bits. Nodes hold no blocks: the pool drops the
least recently held blocks when it needs room, and calls the tree back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ingot.arrays import Ints
from ingot.graph.kv_layout import BLOCK_TOKENS
from ingot.kvcache.pool import BlockPool
from ingot.kvcache.sequence_blocks import NO_BLOCK


@dataclass(frozen=True, slots=True)
class Run:
    """The tokens of a run, and how many of them, from the first on, were read as a prompt."""

    tokens: bytes
    prompted: int


def run_of(tokens: Ints, prompted: int, index: int) -> Run:
    """A run of a text whose first `prompted` tokens were read as a prompt."""
    start = index * BLOCK_TOKENS
    piece = tokens[start : start + BLOCK_TOKENS]
    return Run(piece.tobytes(), min(max(prompted - start, 0), BLOCK_TOKENS))


@dataclass(slots=True, eq=False)
class Node:
    """A run after its parent's; the root has no tokens."""

    parent: "Node | None"
    run: Run
    blocks: list[int]  # one per group, NO_BLOCK if it was dropped
    children: dict[bytes, dict[int, "Node"]] = field(default_factory=dict)  # tokens, prompted
    visitors: int = 0  # sequences whose last full run it is

    def child(self, run: Run) -> "Node | None":
        """The node of exactly this run."""
        return self.children.get(run.tokens, {}).get(run.prompted)


class PrefixTree:
    """The runs whose blocks the pool keeps."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.root = Node(None, Run(b"", 0), [])
        self.nodes = 0

    def add(self, parent: Node, run: Run, blocks: Sequence[int]) -> Node:
        """File a run with its blocks; if it is known already, add the blocks it lacks."""
        node = parent.child(run)
        if node is None:
            node = Node(parent, run, [NO_BLOCK] * len(blocks))
            parent.children.setdefault(run.tokens, {})[run.prompted] = node
            self.nodes += 1
        for group, block in enumerate(blocks):
            # A block that another node has came from there.
            known = node.blocks[group] != NO_BLOCK or self._pool.is_kept(group, block)
            if block != NO_BLOCK and not known:
                node.blocks[group] = block
                self._pool.keep(group, block, partial(self._forget, node))
        return node

    def find(self, tokens: Ints, prompted: int, *, exactly: bool) -> list[Node]:
        """The longest path with all the blocks that a sequence with this prefix needs.

        `exactly` asks for runs that were computed as this text would compute them.
        """
        path: list[Node] = []
        best = 0
        groups = self._pool.layout.groups
        since = [0] * len(groups)  # the run from which on all blocks are there
        for node in self._walk(tokens, prompted, exactly):
            path.append(node)
            for group, block in enumerate(node.blocks):
                if block == NO_BLOCK:
                    since[group] = len(path)
            length = len(path) * BLOCK_TOKENS
            if all(
                first <= group.oldest_run(length)
                for group, first in zip(groups, since, strict=True)
            ):
                best = len(path)
        return path[:best]

    def enter(self, node: Node) -> None:
        """Keep a node in its place while a sequence may add to it."""
        node.visitors += 1

    def leave(self, node: Node) -> None:
        """The sequence has grown past the node, or ended."""
        node.visitors -= 1
        self._prune(node)

    def _walk(self, tokens: Ints, prompted: int, exactly: bool) -> Iterator[Node]:
        node = self.root
        for index in range(len(tokens) // BLOCK_TOKENS):
            run = run_of(tokens, prompted, index)
            others = node.children.get(run.tokens)
            if not others or (exactly and run.prompted not in others):
                return
            node = others.get(run.prompted) or next(iter(others.values()))
            yield node

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
            self.nodes -= 1
            node = node.parent
