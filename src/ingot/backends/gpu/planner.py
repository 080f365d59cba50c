"""What a model takes on a device, counted before anything is sent.

A graph and its file come in, of which only the types and shapes of tensors are looked at; bytes go
out. The pools of steps are counted by the code that makes them (`Room`), on PyTorch's device
"meta", which has no memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ingot.backends.gpu.attention import check_kv_type
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.matrices import MatrixPlan, plan_matrices
from ingot.backends.gpu.memory import DeviceMemory
from ingot.backends.gpu.planes import CHUNK, HALF_BITS, packing_bytes
from ingot.backends.gpu.room import Room
from ingot.backends.gpu.supported import check_graph, check_ops
from ingot.backends.gpu.values import plan_values
from ingot.errors import GraphError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph, MemoryPlan
from ingot.graph import ops as o
from ingot.graph.cut import cut, layer_count
from ingot.graph.fusion import FusedGraph, fuse
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType

_BESIDE = 256 << 20  # bytes beside the pools: logits, captured steps, norms, kernels


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A graph as a device runs it."""

    graph: FusedGraph
    cap: float  # of the logits, in place, where they go; 0: none
    values: MemoryPlan
    matrices: Sequence[MatrixPlan]

    @classmethod
    def of(cls, graph: ComputationGraph, model: GgufLoader) -> "GpuPlan":
        """Plan a graph; one that no GPU can run is refused."""
        check_graph(graph)
        fused, cap = fuse(graph), 0.0
        last = fused.ops[-1]
        if isinstance(last, o.SoftCap):
            fused, cap = FusedGraph(fused.ops[:-1], last.source, fused.kv_layers), last.cap
        check_ops(fused)
        return cls(fused, cap, plan_values(fused), plan_matrices(fused.ops, model))

    @property
    def weight_bytes(self) -> int:
        """Of all matrices on the device."""
        return sum(matrix.nbytes for matrix in self.matrices)

    def sent_bytes(self, model: GgufLoader) -> int:
        """What is sent of them."""
        return sum(matrix.sent_bytes(model) for matrix in self.matrices)

    def decoded(self, model: GgufLoader) -> tuple[str, ...]:
        """The types that no kernel reads: they are half floats on the device."""
        types = {
            model.tensors[weight.name].type
            for matrix in self.matrices
            if matrix.sizes.form.bits == HALF_BITS
            for weight in matrix.weights
        }
        return tuple(sorted(type.name.lower() for type in types if type.block_size > 1))


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of device memory."""

    weights: int
    packing: int  # while weights are sent; the pools of steps are made afterwards
    steps: int
    block: int  # of all groups of the cache

    def total(self, blocks: int) -> int:
        """With a cache of so many blocks."""
        return self.weights + max(self.packing, self.steps + blocks * self.block)

    def most_blocks(self, room: int) -> int:
        """Of a cache that fits; below 0 where not even the rest does."""
        if self.weights + self.packing > room:
            return -1
        return (room - self.weights - self.steps) // max(self.block, 1)


def count_needs(
    plan: GpuPlan,
    model: GgufLoader,
    layout: KvLayout,
    device: Device,
    *,
    context: int,
    tokens: int,
) -> Needs:
    """For steps of so many tokens; a storage of the cache that no kernel reads is refused."""
    check_kv_type(layout.type)
    memory = DeviceMemory(torch.device("meta"))
    Room.of(
        memory,
        plan.graph,
        plan.values,
        plan.matrices,
        layout,
        device,
        blocks=0,
        context=context,
        tokens=tokens,
    )
    return Needs(
        weights=plan.weight_bytes,
        packing=max((_packing(matrix, model) for matrix in plan.matrices), default=0),
        steps=memory.allocated + _BESIDE,
        block=sum(group.block_bytes for group in layout.groups),
    )


def _packing(matrix: MatrixPlan, model: GgufLoader) -> int:
    """What was sent, the same joined or filled up, and the piece that is being packed."""
    sizes = matrix.sizes
    return 2 * matrix.sent_bytes(model) + packing_bytes(sizes.rows * sizes.chunks * CHUNK)


class Planner:
    """How many layers of a model fit a device; the others would run elsewhere."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        kv_type: KvType,
        device: Device,
        *,
        context: int,
        tokens: int,
        split_tokens: int,
    ) -> None:
        """Steps are of `tokens` where all layers are on the device, else of `split_tokens`."""
        self.layers = layer_count(graph)
        self._graph, self._model, self._kv_type = graph, model, kv_type
        self._device, self._context = device, context
        self._tokens, self._split_tokens = tokens, split_tokens
        self._known: dict[int, Needs] = {}

    def needs(self, layers: int) -> Needs:
        """Of the first so many layers; of all of them with the output."""
        if layers not in self._known:
            whole = layers == self.layers
            graph = self._graph if whole else cut(self._graph, layers).first
            self._known[layers] = count_needs(
                GpuPlan.of(graph, self._model),
                self._model,
                KvLayout.of(graph.kv_layers, self._kv_type, graph.states),
                self._device,
                context=self._context,
                tokens=self._tokens if whole else self._split_tokens,
            )
        return self._known[layers]

    def fits(self, layers: int, room: int, blocks: int) -> bool:
        """Whether so many layers fit, with so many blocks of the cache; never where no cut is."""
        try:
            return self.needs(layers).total(blocks) <= room
        except GraphError:  # more than the residual stream would cross
            return False

    def most_layers(self, room: int, blocks: int) -> int:
        """The most that fit; 0: not one."""
        if self.fits(self.layers, room, blocks):
            return self.layers
        least, most = 0, self.layers - 1
        while least < most:
            middle = (least + most + 1) // 2
            if self.fits(middle, room, blocks):
                least = middle
            else:
                most = middle - 1
        return least
