"""Where the layers of a model run (CPU, one or several GPUs, or the first layers on GPUs), and its
cache size."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal

from ingot import _native
from ingot.backends.backend import Backend, OnOpening, choose_device, choose_devices
from ingot.backends.cpu import CpuBackend, Pools
from ingot.backends.cpu.seats import Seat
from ingot.backends.device_sampler import DeviceSampler
from ingot.backends.encoder_decoder import EncoderDecoder
from ingot.backends.precision import Precision
from ingot.backends.split import PartLayout, SplitBackend
from ingot.engine.model import memory
from ingot.engine.model.memory import CacheSize
from ingot.engine.model.on_gpu import OnGpu
from ingot.errors import ConfigError, GraphError, IngotError, MemoryShortageError, ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.cut import cut, layer_count
from ingot.graph.kv_layout import KvLayout

if TYPE_CHECKING:
    from ingot.backends.gpu import Device, GpuBackend, GpuPlan
    from ingot.engine.model.gpu_split import SplitPlanner

STEP_TOKENS = 512  # of a prompt; an encoder takes a whole text at once

_MOST_SHARE = 1_000_000  # of a GPU, in `gpu_split`; only their ratios count
_SPARE = 4  # the part of what is left beside weights and steps that no default cache takes

GpuLayers = int | Literal["auto"] | None


class Placed:
    """A backend and the size of its cache."""

    backend: Backend
    size: CacheSize
    gpu: OnGpu | None = None  # None: all layers are on the CPU
    why_cpu: str | None = None  # why, if the device is "auto"
    device_sampler: DeviceSampler | None = None  # the backend, if it samples tokens itself
    gpu_backend: "GpuBackend | None" = None
    gpu_parts: "tuple[GpuBackend, ...]" = ()  # instead of it, on several GPUs
    gpu_encoder: "GpuBackend | None" = None  # what reads prompts, if something else writes
    cpu_backend: CpuBackend | None = None  # of the layers that are there
    untouched: int = 0  # bytes of cache and arenas on the CPU, which steps are going to touch
    decode_sequences: int = _native.MAX_GENERATION_TOKENS  # the most of a decode step
    default_running: int = memory.DEFAULT_RUNNING  # sequences at once, if no number is asked for
    give_back: Callable[[], None] | None = None  # frees device memory that a closed model leaves

    def __init__(
        self,
        graph: ComputationGraph,
        file: GgufLoader,
        layout: KvLayout,
        *,
        context: int,
        cache_tokens: int | None,
        threads: int,
        seats: Sequence[Seat] = (),
        precision: Precision,
        device: str,
        gpu_layers: GpuLayers = None,
        gpu_split: Sequence[float] | None = None,
        sequences: int | None = None,
        progress: OnOpening | None = None,
        keep: Collection[str] = (),
    ) -> None:
        """With `device` "auto", a model that no GPU can run runs on the CPU (`why_cpu`).

        The first `gpu_layers` layers run on the GPU; "auto": as many as fit; None: all of them, or
        as many as fit if the device is "auto". With `gpu_split` several GPUs, from the one that is
        named on, have their shares of these layers. A GPU decodes at most `sequences` at once.
        `keep` names values that a backend can tell after a step, if it has all layers.
        """
        self._graph, self._file, self._layout = graph, file, layout
        self._context, self._cache_tokens, self._threads = context, cache_tokens, threads
        self._seats = seats
        self._precision, self._progress, self._keep = precision, progress, keep
        self._asked_sequences = sequences
        self._sequences = sequences or memory.DEFAULT_RUNNING
        layers = _checked_layers(gpu_layers, layer_count(graph), device)
        if gpu_split is not None:
            check_shares(gpu_split)
            if device == "cpu":
                raise ConfigError(
                    f"gpu_split is {gpu_split!r}, and the device 'cpu'; take device='cuda'"
                )
        if layers != 0:
            try:
                if gpu_split is not None:
                    self._place_on_several(device, gpu_split, layers)
                    return
                gpu = choose_device(device)
                if gpu is not None:
                    self._place_on(gpu, layers)
                    return
            except (ConfigError, ModelError, GraphError) as error:
                if device != "auto":
                    raise
                self.why_cpu = str(error)
            self.gpu_backend = self.gpu_encoder = None
            self.gpu_parts = ()
            if self.give_back is not None:  # it failed halfway
                self.give_back()
        self.size = CacheSize.of(layout, context, cache_tokens, memory.available())
        self.size.require(layout)
        self.backend = self._on_cpu(graph, layout, self.size)

    def _place_on(self, gpu: "Device", layers: int | None) -> None:
        """Place that many layers, or as many as fit; raise an error if they do not fit."""
        from ingot.backends.gpu import require  # noqa: PLC0415 (PyTorch, if asked for)
        from ingot.engine.model.gpu_fit import make_planner, writes_nothing  # noqa: PLC0415

        kind, context = self._layout.type, self._context
        keep = self._keep
        planner = make_planner(
            self._graph, self._file, kind, gpu, context, self._sequences, keep=keep
        )
        room, least = gpu.free_memory(), self._least_size()
        if self._asked_sequences is None and not writes_nothing(self._graph):
            many = memory.sequences_for(self._layout, context, room)
            larger = make_planner(self._graph, self._file, kind, gpu, context, many, keep=keep)
            if larger.fits(larger.layers, room, least.blocks, least.states):
                planner, self._sequences = larger, many
        if layers is None:
            layers = planner.most_layers(room, least.blocks, least.states)
        if not layers or not planner.fits(layers, room, least.blocks, least.states):
            most = planner.most_layers(room, least.blocks, least.states)
            remedy = f"gpu_layers={most} would fit; or " if most else "not one layer would fit; "
            needs = planner.needs(layers or planner.layers)
            require(needs.total(least.blocks, least.states), room, remedy)
        place = self._whole_on if layers == planner.layers else self._split_on
        place(gpu, planner.plan(layers), layers, room)

    def _place_on_several(self, device: str, shares: Sequence[float], layers: int | None) -> None:
        """Place that many layers on several GPUs, or as many as fit; an error if they do not."""
        devices = choose_devices(device, len(shares))
        from ingot.engine.model.gpu_fit import writes_nothing  # noqa: PLC0415 (PyTorch)
        from ingot.engine.model.gpu_split import SplitPlanner  # noqa: PLC0415

        def planned(sequences: int) -> "SplitPlanner":
            return SplitPlanner(
                self._graph,
                self._file,
                self._layout.type,
                devices,
                shares,
                context=self._context,
                sequences=sequences,
            )

        planner, least = planned(self._sequences), self._least_size()
        rooms = [each.free_memory() for each in devices]
        if self._asked_sequences is None and not writes_nothing(self._graph):
            many = memory.sequences_for(self._layout, self._context, sum(rooms))
            larger = planned(many)
            if larger.fits(larger.layers, rooms, least):
                planner, self._sequences = larger, many
        if layers is None:
            layers = planner.most_layers(rooms, least) or planner.layers
        planner.require(layers, rooms, least)
        self._run_on_several(planner, layers, rooms)

    def _run_on_several(self, planner: "SplitPlanner", layers: int, rooms: Sequence[int]) -> None:
        """Open the parts, with as many blocks in each."""
        from ingot.backends.gpu import GpuChain  # noqa: PLC0415 (PyTorch)

        plans, whole = planner.plans(layers), layers == planner.layers
        halves = None if whole else cut(self._graph, layers)
        there = PartLayout.of(halves.first if halves else self._graph, self._layout)
        here = PartLayout.of(halves.second, self._layout) if halves else None
        parts = [PartLayout.of(graph, there.own) for graph in planner.graphs(layers)[: len(plans)]]
        free, running = [gpu.free_memory() for gpu in planner.devices], 0
        if whole:
            running = self._sequences
        sizes = [
            CacheSize.of(part.own, self._context, self._cache_tokens, room, running)
            for part, room in zip(parts, free, strict=True)
        ]
        if here:
            room = memory.available()
            sizes.append(CacheSize.of(here.own, self._context, self._cache_tokens, room))
        self.size = _smallest(sizes)
        for plan, room in zip(plans, rooms, strict=True):
            self.size = self._fitting(self.size, plan, room)
        rest: Backend | None = None
        if halves and here:  # First the CPU, so that its errors come before the upload.
            self.size.require(here.own)
            rest = self._on_cpu(halves.second, here.own, self.size)
        self.gpu_parts = tuple(self._upload(plan) for plan in plans)
        self.gpu = OnGpu.of(self.gpu_parts, layers, planner.layers, gpus=len(plans))
        self.backend = chain = GpuChain(list(zip(self.gpu_parts, parts, strict=True)))
        if rest and here:
            self.backend = SplitBackend([(chain, there), (rest, here)])
        elif plans[-1].sequences:
            self.device_sampler = chain
            self.decode_sequences = self.default_running = plans[-1].sequences

    def _least_size(self) -> CacheSize:
        """The smallest cache: what was asked for, or one context."""
        return CacheSize.of(self._layout, self._context, self._cache_tokens, 0)

    def _fitting(self, wanted: CacheSize, plan: "GpuPlan", room: int) -> CacheSize:
        """A cache of this size, or a smaller one if a GPU with `room` bytes cannot hold it.

        A default one leaves room for what comes later: drafts, adapters, embeddings.
        """
        needs, least = plan.needs, self._least_size()
        if self._cache_tokens is None:
            room -= max(room - needs.total(least.blocks, least.states), 0) // _SPARE
        states = wanted.states
        if needs.state:  # they leave the other half to keys and values
            free = room - needs.total(least.blocks)
            states = min(states, max(least.states, free // 2 // needs.state))
        return CacheSize(min(wanted.blocks, needs.most_blocks(room, states)), states)

    def _whole_on(self, gpu: "Device", plan: "GpuPlan", layers: int, room: int) -> None:
        wanted = CacheSize.of(
            self._layout, self._context, self._cache_tokens, gpu.free_memory(), self._sequences
        )
        self.size = self._fitting(wanted, plan, room)
        backend = self.backend = self._on_gpu(plan, layers)
        if self.gpu_encoder is not None:
            self.backend = EncoderDecoder(self.gpu_encoder, backend)
        if plan.sequences:
            self.device_sampler = backend
            self.decode_sequences = self.default_running = plan.sequences

    def _split_on(self, gpu: "Device", plan: "GpuPlan", layers: int, room: int) -> None:
        """Place the first layers on the GPU; the cache has as many blocks in both places."""
        parts = cut(self._graph, layers)
        first = PartLayout.of(parts.first, self._layout)
        second = PartLayout.of(parts.second, self._layout)
        there, here = (
            CacheSize.of(part.own, self._context, self._cache_tokens, free)
            for part, free in ((first, gpu.free_memory()), (second, memory.available()))
        )
        self.size = self._fitting(_smallest((there, here)), plan, room)
        self.size.require(second.own)
        # First the CPU, so that its errors come before the upload.
        second_backend = self._on_cpu(parts.second, second.own, self.size)
        first_backend = self._on_gpu(plan, layers)
        self.backend = SplitBackend([(first_backend, first), (second_backend, second)])

    def _on_gpu(self, plan: "GpuPlan", layers: int) -> "GpuBackend":
        from ingot.backends.gpu import GpuBackend  # noqa: PLC0415 (PyTorch, if asked for)

        backend = self._upload(plan)
        self.gpu_backend, programs = backend, [backend]
        if plan.encoder is not None:
            self.gpu_encoder = GpuBackend(
                plan.encoder,
                self._file,
                blocks=self.size.blocks,
                progress=self._progress,
                weights=backend.weights,
                pools=backend.pools,
            )
            programs.append(self.gpu_encoder)
        self.gpu = OnGpu.of(programs, layers, layer_count(self._graph))
        return backend

    def _upload(self, plan: "GpuPlan") -> "GpuBackend":
        from ingot.backends.gpu import GpuBackend, give_back  # noqa: PLC0415 (PyTorch, if asked for)

        self.give_back = give_back
        return GpuBackend(
            plan,
            self._file,
            blocks=self.size.blocks,
            states=self.size.states,
            progress=self._progress,
        )

    def _on_cpu(self, graph: ComputationGraph, layout: KvLayout, size: CacheSize) -> Backend:
        def program(
            graph: ComputationGraph, keep: Collection[str], pools: Pools | None = None
        ) -> CpuBackend:
            return CpuBackend(
                graph,
                self._file,
                layout,
                blocks=size.blocks,
                states=size.states,
                context=self._context,
                threads=self._threads,
                seats=self._seats,
                precision=self._precision,
                max_tokens=STEP_TOKENS if graph.causal else self._context,
                keep=keep,
                pools=pools,
            )

        try:
            keep = self._keep if graph is self._graph else ()
            self.cpu_backend = backend = program(graph, keep)
            self.untouched = backend.cache_bytes + backend.arena_bytes
            if graph.encoder is None:
                return backend
            encoder = program(graph.encoder, (), backend.pools)
            self.untouched += encoder.arena_bytes
            return EncoderDecoder(encoder, backend)
        except IngotError:
            raise
        except MemoryError as error:  # a limit of the process, not of the system
            raise MemoryShortageError(
                f"{self._file.path}: there is no memory for a context of {self._context} tokens; "
                "choose a smaller context"
            ) from error
        except ValueError as error:  # from the native program
            raise ModelError(f"{self._file.path} cannot be run on the CPU: {error}") from error


def _smallest(sizes: Sequence[CacheSize]) -> CacheSize:
    """What all of some places can hold; those without states hold any number of them."""
    states = [size.states for size in sizes if size.states]
    return CacheSize(min(size.blocks for size in sizes), min(states, default=0))


def check_shares(shares: object) -> None:
    """Refuse what is no `gpu_split`."""
    numbers = shares if isinstance(shares, (list, tuple)) else ()
    valid = all(
        isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share <= _MOST_SHARE
        for share in numbers
    )
    if len(numbers) < 2 or not valid:
        raise ConfigError(
            f"gpu_split is {shares!r}; it must be a list of two or more numbers above 0 and up to "
            f"{_MOST_SHARE:,}, the share of each GPU"
        )


def _checked_layers(layers: GpuLayers, most: int, device: str) -> int | None:
    """How many layers are asked for; None: as many as fit."""
    if layers is None:
        return {"cpu": 0, "auto": None}.get(device, most)
    if layers == "auto":
        wanted = None
    elif isinstance(layers, bool) or not isinstance(layers, int) or not 0 <= layers <= most:
        raise ConfigError(
            f"gpu_layers is {layers!r}; it must be a number from 0 to {most}, the layers of this "
            "model, or 'auto'"
        )
    else:
        wanted = layers
    if device == "cpu" and wanted != 0:
        raise ConfigError(f"gpu_layers is {layers!r}, and the device 'cpu'; take device='cuda'")
    return wanted
