"""BlockPool: the blocks of the cache, who holds them, and which are free. No tensors.

Every cache group (see `ingot.graph.kv_layout`) has as many blocks as the others. A block that
the prefix tree knows (`keep`) stays as it is when nobody holds it any more, until its place is
needed: the one that was let go first goes first.
"""

from collections.abc import Callable

from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout

Forget = Callable[[int, int], None]  # group, block


class BlockPool:
    """The blocks of every group: held, kept or free."""

    def __init__(self, layout: KvLayout, blocks: int) -> None:
        self.layout = layout
        self.blocks = blocks
        self._free = [list(range(blocks - 1, -1, -1)) for _ in layout.groups]
        self._holders = [[0] * blocks for _ in layout.groups]
        self._forget: list[dict[int, Forget]] = [{} for _ in layout.groups]
        self._idle: list[dict[int, None]] = [{} for _ in layout.groups]  # kept, oldest first

    def take(self, group: int) -> int:
        """A block of a group that nobody holds."""
        if self._free[group]:
            block = self._free[group].pop()
        elif self._idle[group]:
            block = next(iter(self._idle[group]))
            del self._idle[group][block]
            self._forget[group].pop(block)(group, block)
        else:
            raise CacheFullError(
                f"all {self.blocks} blocks of the cache ({self.blocks * BLOCK_TOKENS} tokens) "
                "are in use; give it more memory or wait for a sequence to end"
            )
        self._holders[group][block] = 1
        return block

    def share(self, group: int, block: int) -> None:
        """Hold a block once more, or again."""
        self._idle[group].pop(block, None)
        self._holders[group][block] += 1

    def give_back(self, group: int, block: int) -> None:
        """Let go of a block; it can be taken when nobody holds it."""
        self._holders[group][block] -= 1
        if self._holders[group][block] == 0:
            if block in self._forget[group]:
                self._idle[group][block] = None
            else:
                self._free[group].append(block)

    def keep(self, group: int, block: int, forget: Forget) -> None:
        """Leave a held block's content in place after its holders; `forget` hears of its end."""
        self._forget[group][block] = forget

    def is_kept(self, group: int, block: int) -> bool:
        """Whether the prefix tree knows a block."""
        return block in self._forget[group]

    def drop_idle(self) -> None:
        """Free every block that nobody holds."""
        for group, idle in enumerate(self._idle):
            for block in list(idle):
                self._forget[group].pop(block)(group, block)
                self._free[group].append(block)
            idle.clear()

    def available(self, group: int) -> int:
        """How many blocks of a group can be taken."""
        return len(self._free[group]) + len(self._idle[group])

    def free(self, group: int) -> int:
        """How many blocks of a group hold nothing."""
        return len(self._free[group])
