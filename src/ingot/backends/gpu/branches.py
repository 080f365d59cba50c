"""Kernels that do not need each other, side by side on streams of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ingot.backends.batch import ExecutionPhase
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.step import Step

SIDE = True


@dataclass(slots=True)
class Branches:
    """The streams of a backend, made when they are needed."""

    device: Device
    _streams: list[torch.cuda.Stream] = field(default_factory=list)

    def run(self, step: Step, works: Sequence[Callable[[], None]]) -> None:
        """Launch works side by side if they are small: those of a generation."""
        alone = step.phase is ExecutionPhase.PROMPT or self.device.interpreted or not SIDE
        if alone or len(works) == 1:
            for work in works:
                work()
            return
        while len(self._streams) < len(works) - 1:
            self._streams.append(torch.cuda.Stream(self.device.torch))
        main = torch.cuda.current_stream(self.device.torch)
        for stream, work in zip(self._streams, works[1:], strict=False):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                work()
        works[0]()
        for stream in self._streams[: len(works) - 1]:
            main.wait_stream(stream)
