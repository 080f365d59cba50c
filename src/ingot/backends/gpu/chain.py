"""GpuChain: the layers of a model on several GPUs, one part after the other.

Rows go from one GPU to the next without the host, and so do sampled tokens, from the last one to
those that embed them. The host waits for the last part only. A GPU computes while the others wait.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import Batch
from ingot.backends.device_sampler import SamplingPlan, Started
from ingot.backends.gpu.backend import GpuBackend
from ingot.backends.split import PartLayout, SplitBackend


class GpuChain(SplitBackend):
    """A model of which each part runs on a GPU."""

    def __init__(self, parts: Sequence[tuple[GpuBackend, PartLayout]]) -> None:
        """Two parts or more, in order."""
        super().__init__(parts)
        self._chain, (self._last, self._last_layout) = parts[:-1], parts[-1]

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        return self.start(batch, [None] * len(batch.outputs)).result().logits

    @property
    def prompt_rows(self) -> int:
        """The number of a prompt chunk's first row, after those of all decode steps."""
        return self._last.prompt_rows

    def accepts(self, plan: SamplingPlan) -> bool:
        """Whether the last GPU can follow this plan."""
        return self._last.accepts(plan)

    def start(self, batch: Batch, plans: Sequence[SamplingPlan | None]) -> Started:
        """Run a batch and sample tokens of its wanted rows, as a `GpuBackend` does.

        The seconds of the result are those of the last part.
        """
        rows = None
        for backend, layout in self._chain:
            if rows is not None:
                backend.put_rows(rows)
            rows = backend.hand_over(layout.every_row(batch))
        assert rows is not None, "there are two parts"
        self._last.put_rows(rows)
        started = self._last.start(self._last_layout.batch(batch), plans)
        if any(plans):
            for backend, _ in self._chain:
                backend.take_sampled(self._last)
        return started
