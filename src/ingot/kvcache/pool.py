"""BlockPool: the blocks of the cache, how many sequences hold each, and which are free. No tensors.

Every group of keys and values (see `ingot.graph.kv_layout`) has as many blocks as the others. The
states of recurrent operations, of which a sequence needs one or two, have a different number. A
block that the prefix tree knows (`keep`) keeps its content after its last holder, until its place
is needed: the least recently held block goes first.
"""

from collections.abc import Callable

from ingot.errors import CacheFullError
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout

Forget = Callable[[int, int], None]  # group, block


class BlockPool:
    """The blocks of every group: held, kept or free."""

    def __init__(self, layout: KvLayout, blocks: int, states: int = 0) -> None:
        self.layout = layout
        self.sizes = [states if group.recurrent else blocks for group in layout.groups]
        self._free = [list(range(size - 1, -1, -1)) for size in self.sizes]
        self._holders = [[0] * size for size in self.sizes]
        self._forget: list[dict[int, Forget]] = [{} for _ in layout.groups]
        self._idle: list[dict[int, None]] = [{} for _ in layout.groups]  # kept, oldest first

    def take(self, group: int) -> int:
        """Take a block of a group that nobody holds."""
        if self._free[group]:
            block = self._free[group].pop()
        elif self._idle[group]:
            block = next(iter(self._idle[group]))
            del self._idle[group][block]
            self._forget[group].pop(block)(group, block)
        else:
            size = self.sizes[group]
            what = f"blocks of the cache ({size * BLOCK_TOKENS} tokens)"
            if self.layout.groups[group].recurrent:
                what = "states of the cache"
            raise CacheFullError(
                f"all {size} {what} are in use; give it more memory or wait for a sequence to end"
            )
        self._holders[group][block] = 1
        return block

    def share(self, group: int, block: int) -> None:
        """Add a holder to a block."""
        self._idle[group].pop(block, None)
        self._holders[group][block] += 1

    def give_back(self, group: int, block: int) -> None:
        """Remove a holder; a block without holders can be taken."""
        self._holders[group][block] -= 1
        if self._holders[group][block] == 0:
            if block in self._forget[group]:
                self._idle[group][block] = None
            else:
                self._free[group].append(block)

    def keep(self, group: int, block: int, forget: Forget) -> None:
        """Keep a block's content after its last holder; `forget` is called when it is lost."""
        self._forget[group][block] = forget

    def claim(self, group: int, block: int) -> None:
        """Take a block that is kept and that nobody holds, with its content; it is not kept."""
        del self._idle[group][block]
        del self._forget[group][block]
        self._holders[group][block] = 1

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

    def has_one_of_each(self) -> bool:
        """Whether a block of every group can be taken."""
        return all(map(self.available, range(len(self.sizes))))

    def free(self, group: int) -> int:
        """How many blocks of a group are empty."""
        return len(self._free[group])
