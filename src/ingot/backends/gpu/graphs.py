"""Capture launches as CUDA graphs, and count them.

A step is captured in pieces, each longer than the one before: to start a piece takes time for each
of its kernels, and the device runs the first while the others are started. The interpreter has
nothing to capture: there a piece is the function itself.
"""

from collections.abc import Callable
from functools import partial

import torch

from ingot.backends.gpu.device import CAPTURING, Device
from ingot.backends.gpu.lowering import Program, Step

FIRST_PIECE = 8  # operations; the next pieces are twice as long as those before them

Replay = Callable[[], None]


class Graphs:
    """Captures the steps of one backend; `captures` counts their pieces."""

    def __init__(self, device: Device) -> None:
        self.captures = 0
        self._stream = None if device.interpreted else torch.cuda.Stream(device.torch)

    def capture(self, run: Callable[[], None]) -> Replay:
        """A function that has the same effect. All kernels of it have run before."""
        self.captures += 1
        if self._stream is None:
            return run
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        # Other threads may run, open or close models meanwhile.
        with CAPTURING, torch.cuda.stream(self._stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                run()
            finally:
                graph.capture_end()
        replay: Replay = graph.replay
        return replay

    def pieces(self, program: Program, step: Step, start: int, stop: int) -> list[Replay]:
        """The operations from `start` up to `stop`."""
        found, length = [], FIRST_PIECE if start == 0 else 2 * FIRST_PIECE
        while start < stop:
            part = slice(start, min(start + length, stop))
            found.append(self.capture(partial(program.run, step, part)))
            start, length = part.stop, 2 * length
        return found
