"""ChunkSizes: how many prompt tokens a step has beside texts in decode, from what steps took.

Measured seconds of decode steps and of prompt chunks come in; the size of the next chunk goes out.
A chunk delays the next tokens of all texts, so it is the largest that takes about as long as two
decode steps: then no gap between two tokens is longer than three of them. Small chunks fill a
device badly; that is why the smallest is not always best. Only the step thread calls this.
"""

from collections.abc import Sequence

from ingot.engine.step_costs import StepCosts

_DECODE_STEPS = 2.0  # that a chunk may take as long as
_ROUND = 128  # tokens, to which chunks are rounded up: a device fills them up, too
# Chunks after which the next larger size is tried once, because it may have become affordable: a
# longer gap in 256 is not among the longest hundredth.
_TRY_AFTER = 256


class ChunkSizes:
    """Chooses among some sizes of chunks. Until something is measured, it is the smallest."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """`sizes` are in order; a device has captured steps for each of them."""
        self._sizes = sizes
        self._chosen = sizes[0]
        self._decode = StepCosts()  # by tokens
        self._chunks = StepCosts()  # by tokens, rounded
        self._since = 0  # chunks since one was larger than chosen

    def choose(self, decoded: int) -> int:
        """Tokens of a chunk beside so many in decode."""
        self._chosen = self._affordable(decoded)
        larger = (size for size in self._sizes if size > self._chosen)
        return next(larger, self._chosen) if self._since >= _TRY_AFTER else self._chosen

    def _affordable(self, decoded: int) -> int:
        step, chosen = self._decode.at_least(decoded), self._sizes[0]
        if step is None:
            return chosen
        for size in self._sizes:
            seconds = self._chunks.seconds(size)
            if seconds is not None and seconds <= _DECODE_STEPS * step:
                chosen = size
        return chosen

    def saw_decode(self, tokens: int, seconds: float) -> None:
        """A decode step of so many tokens took so long."""
        self._decode.add(tokens, seconds)

    def saw_chunk(self, tokens: int, seconds: float) -> None:
        """A chunk took so long."""
        self._chunks.add(-(-tokens // _ROUND) * _ROUND, seconds)
        self._since = 0 if tokens > self._chosen else self._since + 1
