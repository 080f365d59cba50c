"""AdaptedSteps: steps with adapters, made ready beside steps that run.

The first adapter, and one of a larger rank than all before, needs memory, kernels and captured
decode steps of its own. `prepare` makes them in the thread that wants the adapter: kernels are
compiled in other processes and brought to the device, and steps captured, without running any.
`take` has steps use them, between two steps.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from threading import Lock
from typing import Any, Protocol

from ingot.backends.backend import Prepared
from ingot.backends.gpu.adapters import AdapterBank, AdapterMemory
from ingot.backends.gpu.compile_ahead import compile_ahead
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.graphs import Graphs
from ingot.backends.gpu.prompts import PromptReplay
from ingot.backends.gpu.replay import DecodeReplay
from ingot.backends.gpu.variants import Grid, Kernels, Start, Variants


class MakeReplay(Protocol):
    """Gives decode steps that can be captured."""

    def __call__(self, graphs: Graphs, *, adapters: AdapterMemory) -> DecodeReplay:
        """For adapters with this memory."""


class AdaptedSteps:
    """Those of one backend."""

    def __init__(
        self, device: Device, bank: AdapterBank, prompts: PromptReplay, make: MakeReplay
    ) -> None:
        self.replay: DecodeReplay | None = None
        self.made = Prepared()  # what was compiled and captured, and no step waited for
        self._device, self._bank, self._prompts, self._make = device, bank, prompts, make
        self._preparing = Lock()
        self._taking = Lock()  # of what is next; never held for long, because steps wait for it
        self._next: tuple[AdapterMemory, DecodeReplay] | None = None

    def prepare(self, rank: int) -> None:
        """Make steps with adapters of this rank ready; any thread may call."""
        if self._is_ready(rank):  # also while others wait for a larger one
            return
        with self._preparing:
            if self._is_ready(rank):
                return
            before = self._latest
            memory = self._bank.room_for(rank, before)
            kernels, graphs = Kernels(self._device), Graphs(self._device)
            loading = _Loading(self._device)
            replay = self._make(graphs, adapters=memory)
            if not self._device.interpreted:
                variants = Variants()
                self._launch(replay, memory, variants)
                compile_ahead(variants.missing)
                self._launch(replay, memory, loading)
            for _ in replay.capture(kernels):
                pass
            self._device.wait()
            self.made += Prepared(loading.compilations + kernels.compilations, graphs.captures)
            with self._taking:
                self._next = memory, replay

    @property
    def _latest(self) -> AdapterMemory | None:
        with self._taking:
            return self._next[0] if self._next else self._bank.memory

    def _is_ready(self, rank: int) -> bool:
        latest = self._latest
        return latest is not None and rank <= latest.rank

    def _launch(self, replay: DecodeReplay, memory: AdapterMemory, start: Start) -> None:
        """Pass all launches of all steps to a `start` that runs none of them."""
        launches: Iterator[Callable[[], None]] = chain(
            replay.launches(start), self._prompts.launches(start, memory)
        )
        for launch in launches:
            launch()

    def take(self) -> None:
        """Use what was prepared from the next step on; no step runs now."""
        with self._taking:
            if self._next:
                self._bank.memory, self.replay = self._next
                self._next = None


class _Loading:
    """Brings variants of kernels to the device, from Triton's cache on the disk, and runs none."""

    def __init__(self, device: Device) -> None:
        self._index = device.torch.index
        self.compilations = 0

    def __call__(self, kernel: Any, grid: Grid, **arguments: Any) -> None:
        """Load what a launch needs."""
        ready = kernel.device_caches[self._index][0]
        before = len(ready)
        found = kernel.run(grid=grid, warmup=True, **arguments)
        found.run  # noqa: B018 (it is loaded when it is first looked at)
        self.compilations += len(ready) - before
