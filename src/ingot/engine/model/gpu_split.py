"""SplitPlanner: the layers of a model on several GPUs, planned part by part before any upload.

In: a model, the GPUs, and their shares. Out: which layers are where, what each GPU needs, and
whether it has that. It imports PyTorch, which counts on a device without memory.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from ingot.backends.gpu import Device, GpuPlan
from ingot.engine.model.gpu_fit import GpuFit, step_tokens, writes_nothing
from ingot.engine.model.memory import DEFAULT_RUNNING, CacheSize
from ingot.errors import ConfigError, GraphError, MemoryShortageError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.cut import cut_all, layer_count
from ingot.graph.kv_layout import BLOCK_TOKENS, KvLayout
from ingot.graph.kv_type import KvType


class SplitPlanner:
    """How the first layers of a model are shared out among GPUs; others would run on the CPU."""

    def __init__(
        self,
        graph: ComputationGraph,
        file: GgufLoader,
        kv_type: KvType,
        devices: Sequence[Device],
        shares: Sequence[float],
        *,
        context: int,
        sequences: int = DEFAULT_RUNNING,
    ) -> None:
        """A GPU has its share of the layers. A step decodes at most so many sequences."""
        self.layers = layer_count(graph)
        self.devices = devices
        if graph.encoder is not None:
            raise GraphError("an encoder-decoder runs on one device: leave gpu_split out")
        if len(devices) > self.layers:
            raise ConfigError(
                f"gpu_split has {len(devices)} shares, and the model {self.layers} layers: each "
                "GPU must have one"
            )
        self._graph, self._file, self._kv_type = graph, file, kv_type
        self._shares, self._context, self._sequences = shares, context, sequences
        self._known: dict[int, Sequence[GpuPlan]] = {}

    def ends(self, layers: int) -> list[int]:
        """The layer after the last one of each GPU, if so many are shared out; each has one."""
        total, count = sum(self._shares), len(self._shares)
        found: list[int] = []
        for number, share in enumerate(accumulate(self._shares)):
            least = found[-1] + 1 if found else 1
            most = layers - (count - number - 1)
            found.append(min(max(round(layers * share / total), least), most))
        return found

    def graphs(self, layers: int) -> list[ComputationGraph]:
        """The part of each GPU; if these are not all layers, then that of the CPU."""
        ends = self.ends(layers)
        return cut_all(self._graph, ends if layers < self.layers else ends[:-1])

    def plans(self, layers: int) -> Sequence[GpuPlan]:
        """The plan of each GPU."""
        if layers not in self._known:
            whole, causal = layers == self.layers, self._graph.causal
            tokens = step_tokens(self._context, self._sequences, whole=whole, causal=causal)
            self._known[layers] = [
                GpuPlan.of(
                    graph,
                    self._file,
                    KvLayout.of(graph.kv_layers, self._kv_type, graph.states),
                    device,
                    context=self._context,
                    tokens=tokens,
                    sequences=0 if writes_nothing(self._graph) else self._sequences,
                )
                for graph, device in zip(self.graphs(layers), self.devices, strict=False)
            ]
        return self._known[layers]

    def fits(self, layers: int, rooms: Sequence[int], least: CacheSize) -> bool:
        """Whether so many layers fit the GPUs with a cache of that size; not if there is no cut."""
        if layers < len(self.devices):
            return False
        try:
            plans = self.plans(layers)
        except GraphError:  # more than the residual would cross
            return False
        return all(
            plan.needs.total(least.blocks, least.states) <= room
            for plan, room in zip(plans, rooms, strict=True)
        )

    def most_layers(self, rooms: Sequence[int], least: CacheSize) -> int:
        """The most that fit; 0: not even one on each GPU."""
        if self.fits(self.layers, rooms, least):
            return self.layers
        few, many = 0, self.layers - 1
        while few < many:
            middle = (few + many + 1) // 2
            if middle < len(self.devices) or self.fits(middle, rooms, least):
                few = middle
            else:
                many = middle - 1
        return few if self.fits(few, rooms, least) else 0

    def require(self, layers: int, rooms: Sequence[int], least: CacheSize) -> None:
        """Refuse what does not fit, with the GPU that lacks memory and what would fit."""
        if layers < len(self.devices):
            raise ConfigError(
                f"gpu_layers is {layers}, and gpu_split has {len(self.devices)} shares: each GPU "
                "must have a layer"
            )
        starts = [0, *self.ends(layers)]
        for plan, room, (first, end) in zip(
            self.plans(layers), rooms, pairwise(starts), strict=True
        ):
            needed = plan.needs.total(least.blocks, least.states)
            if needed > room:
                most = self.most_layers(rooms, least)
                remedy = f"gpu_layers={most} would fit; or " if most else ""
                raise MemoryShortageError(
                    f"{_named(plan.device)} would have layers {first} to {end - 1} of "
                    f"{self.layers}, which take {needed / 2**20:.0f} MiB of its memory, and "
                    f"{room / 2**20:.0f} MiB are free: {remedy}change the shares (gpu_split), or "
                    "choose a smaller context or cache"
                )

    def fit(self, rooms: Sequence[int]) -> GpuFit:
        """How much of the model fits the GPUs."""
        plans = self.plans(self.layers)
        size = CacheSize.of(
            KvLayout.of(self._graph.kv_layers, self._kv_type, self._graph.states),
            self._context,
            None,
            0,
        )
        layers = self.most_layers(rooms, size)
        blocks = [
            plan.needs.most_blocks(room, size.states)
            for plan, room in zip(plans, rooms, strict=True)
            if plan.needs.block
        ]
        tokens = min(blocks) * BLOCK_TOKENS if blocks else self._context
        weights = sum(plan.needs.weights for plan in plans)
        return GpuFit(
            weights=weights,
            steps=sum(plan.needs.total(0) for plan in plans) - weights,
            token=sum(plan.needs.block for plan in plans) // BLOCK_TOKENS,
            cache_tokens=tokens if layers == self.layers else 0,
            layers=layers,
            of_layers=self.layers,
            context=self._context,
        )


def _named(device: Device) -> str:
    return f"cuda:{device.torch.index}" if device.torch.index is not None else device.name
