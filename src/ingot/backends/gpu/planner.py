"""What a model is on a device, and the memory it takes, counted before anything is sent.

A graph and its file come in, of which only the types and shapes of tensors are read; a `GpuPlan`
goes out, which `GpuBackend` carries out. The memory of steps is counted by the code that asks for
it (`StepMemory`), on PyTorch's device "meta", which has no memory. Graphs that the GPU cannot run
are refused here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ingot.backends.gpu import (  # noqa: F401 (register how ops are lowered)
    elementwise,
    head_linear,
    join_rows,
    rows,
    streams,
)
from ingot.backends.gpu.attention import query_tile
from ingot.backends.gpu.cache_layers import attention_work, check_kv_type
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.experts import ExpertWork
from ingot.backends.gpu.indexer import IndexWork
from ingot.backends.gpu.kernels.attend_generation import PartWork
from ingot.backends.gpu.kernels.attend_prompt import PromptTile
from ingot.backends.gpu.kernels.delta_rule import DeltaWork
from ingot.backends.gpu.linear import Workspace
from ingot.backends.gpu.lowering import missing
from ingot.backends.gpu.memory import DeviceMemory
from ingot.backends.gpu.planes import CHUNK, HALF_BITS, packing_bytes
from ingot.backends.gpu.sampler import SamplerWork
from ingot.backends.gpu.states import delta_work
from ingot.backends.gpu.values import (
    half_values,
    input_width,
    mixed_norms,
    plan_values,
    selected_values,
)
from ingot.backends.gpu.weights import MatrixPlan, plan_matrices
from ingot.errors import GraphError, ModelError
from ingot.gguf import HasTensors
from ingot.graph import ComputationGraph, MemoryPlan
from ingot.graph import ops as o
from ingot.graph.cut import cut, cut_places, layer_count
from ingot.graph.fusion import FusedGraph, fuse
from ingot.graph.kv_layout import KvLayout, whole_blocks
from ingot.graph.kv_type import KvType

BESIDE = 256 << 20  # bytes beside the pools: logits, captured steps, norms, kernels


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of device memory."""

    weights: int
    packing: int  # while weights are sent; the pools of steps are made afterwards
    steps: int
    block: int  # of all groups of keys and values
    state: int = 0  # of the group of states

    def total(self, blocks: int, states: int = 0) -> int:
        """With a cache of so many blocks and states."""
        cache = blocks * self.block + states * self.state
        return self.weights + max(self.packing, self.steps + cache)

    def most_blocks(self, room: int, states: int = 0) -> int:
        """Blocks of the largest cache that fits; below 0 if not even the rest fits."""
        if self.weights + self.packing > room:
            return -1
        return (room - self.weights - self.steps - states * self.state) // max(self.block, 1)


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A graph as a device runs it, in steps of up to so many tokens."""

    graph: FusedGraph
    cap: o.SoftCap | None  # of the logits, in place
    values: MemoryPlan
    halves: Mapping[str, float]  # values that are half floats, and what they are multiplied by
    selected: frozenset[str]  # values of wanted tokens only
    mixed_norms: Mapping[str, o.FusedLinear]
    matrices: Sequence[MatrixPlan]
    decoded: tuple[str, ...]  # types that no kernel reads: they become half floats
    sent_bytes: int
    layout: KvLayout
    device: Device
    context: int
    tokens: int
    sequences: int  # that a step decodes, at most; 0: texts are read, and none is written
    query_tile: PromptTile
    needs: Needs  # with those of an encoder
    encoder: "GpuPlan | None" = None  # reads prompts and writes to the same cache

    @classmethod
    def of(
        cls,
        graph: ComputationGraph,
        model: HasTensors,
        layout: KvLayout,
        device: Device,
        *,
        context: int,
        tokens: int,
        sequences: int = 64,
        keep: Collection[str] = (),
        unfused: Collection[str] = (),
    ) -> "GpuPlan":
        """Plan a graph; one that no GPU can run, or a KV cache that no kernel reads, is refused.

        A step has at most `tokens` tokens, and decodes at most `sequences` sequences; 0: it reads
        whole texts only. `keep` names values that are there after a step (`GpuBackend.kept`),
        `unfused` those that only `GpuBackend.watch` looks at.
        """
        tokens = max(tokens, sequences)
        encoder = None
        if graph.encoder is not None:  # which takes a whole prompt
            encoder = cls.of(
                graph.encoder,
                model,
                layout,
                device,
                context=context,
                tokens=whole_blocks(context),
                sequences=0,
            )
        fused, cap = _fused(graph, {*keep, *unfused})
        check_kv_type(layout.type)
        values, matrices = plan_values(fused, keep), plan_matrices(fused.ops, model)
        counted = DeviceMemory(torch.device("meta"))
        StepMemory.of(
            counted,
            fused,
            values,
            matrices,
            layout,
            device,
            blocks=0,
            states=0,
            context=context,
            tokens=tokens,
            sequences=sequences,
        )
        needs = Needs(
            weights=sum(matrix.nbytes for matrix in matrices),
            packing=max((_packing(matrix, model) for matrix in matrices), default=0),
            steps=counted.allocated + BESIDE,
            block=sum(group.block_bytes for group in layout.groups if not group.recurrent),
            state=sum(group.block_bytes for group in layout.groups if group.recurrent),
        )
        if encoder is not None:
            needs = _with_encoder(needs, matrices, encoder)
        return cls(
            graph=fused,
            cap=cap,
            values=values,
            halves=half_values(fused),
            selected=selected_values([*fused.ops, *([cap] if cap else [])]),
            mixed_norms=mixed_norms(fused),
            matrices=matrices,
            decoded=_decoded(matrices, model),
            sent_bytes=sum(matrix.sent_bytes(model) for matrix in matrices),
            layout=layout,
            device=device,
            context=context,
            tokens=tokens,
            sequences=sequences,
            query_tile=query_tile(fused.kv_layers, layout.type, device),
            needs=needs,
            encoder=encoder,
        )

    @property
    def ops(self) -> tuple[o.Op, ...]:
        """All that is launched."""
        return (*self.graph.ops, self.cap) if self.cap else self.graph.ops


def _fused(graph: ComputationGraph, keep: Collection[str]) -> tuple[FusedGraph, o.SoftCap | None]:
    """Fuse a graph and set a cap of the logits apart; refuse what no kernel computes."""
    fused, cap = fuse(graph, keep), None
    last = fused.ops[-1]
    if isinstance(last, o.SoftCap):
        fused, cap = FusedGraph(fused.ops[:-1], last.source, fused.kv_layers), last
    for op in fused.ops:
        if lacking := missing(op):
            raise ModelError(f"the GPU backend has no {lacking}; open the model with device='cpu'")
    if not isinstance(fused.ops[-1], o.FusedLinear | o.FusedNorm | o.Select):
        kind = type(fused.ops[-1]).__name__
        raise ModelError(f"the GPU backend has no {kind} at the end; take device='cpu'")
    return fused, cap


def _with_encoder(needs: Needs, matrices: Sequence[MatrixPlan], encoder: GpuPlan) -> Needs:
    """What a decoder and its encoder take together; matrices of both are sent once."""
    more = [matrix for matrix in encoder.matrices if matrix not in set(matrices)]
    return replace(
        needs,
        weights=needs.weights + sum(matrix.nbytes for matrix in more),
        packing=max(needs.packing, encoder.needs.packing),
        steps=needs.steps + encoder.needs.steps,
    )


def _decoded(matrices: Sequence[MatrixPlan], model: HasTensors) -> tuple[str, ...]:
    types = {
        model.tensors[weight.name].type
        for matrix in matrices
        if matrix.sizes.form.bits == HALF_BITS
        for weight in matrix.weights
    }
    return tuple(sorted(type.name.lower() for type in types if type.block_size > 1))


def _packing(matrix: MatrixPlan, model: HasTensors) -> int:
    """What was sent, its copy if there is one, and the piece that is being packed."""
    sizes, copies = matrix.sizes, 2 if matrix.copied else 1
    return copies * matrix.sent_bytes(model) + packing_bytes(sizes.rows * sizes.chunks * CHUNK)


@dataclass(frozen=True, slots=True)
class StepMemory:
    """All the device memory that steps need beside the weights, in a few pools."""

    cache: list[torch.Tensor]  # a group each
    arena: torch.Tensor  # float32: the values of the graph
    x: torch.Tensor  # halves: the input of a linear layer
    rotated: torch.Tensor  # halves: queries
    linear: Workspace
    attention: PartWork
    experts: ExpertWork | None
    delta: DeltaWork | None
    indexer: IndexWork | None
    sampler: SamplerWork

    @classmethod
    def of(
        cls,
        memory: DeviceMemory,
        graph: FusedGraph,
        values: MemoryPlan,
        matrices: Sequence[MatrixPlan],
        layout: KvLayout,
        device: Device,
        *,
        blocks: int,
        states: int,
        context: int,
        tokens: int,
        sequences: int,
        pools: Sequence[torch.Tensor] | None = None,
    ) -> "StepMemory":
        """For a cache of so many blocks, steps of so many tokens, and sequences in decode.

        `pools`: a cache that is there already.
        """
        attends = [op for op in graph.ops if isinstance(op, o.Attend)]
        choices = [op for op in graph.ops if isinstance(op, o.ChoosePositions)]
        queries = [op.query for op in attends] + [op.query for op in choices]
        heads = max((query.width for query in queries), default=1)
        width = input_width(graph)
        inputs = memory.pool(2 * tokens * (width + heads) + 512)
        mixes = [op for op in graph.ops if isinstance(op, o.ExpertMix)]
        deltas = [op for op in graph.ops if isinstance(op, o.DeltaRule)]
        return cls(
            cache=[
                memory.pool((states if group.recurrent else blocks) * group.block_bytes).memory
                for group in layout.groups
            ]
            if pools is None
            else list(pools),
            arena=memory.pool(values.size * tokens).memory.view(torch.float32),
            x=inputs.take(2 * tokens * width).view(torch.float16),
            rotated=inputs.take(2 * tokens * heads).view(torch.float16),
            linear=Workspace.of(memory, matrices, device),
            attention=attention_work(memory, attends, context, sequences),
            experts=ExpertWork.of(memory, mixes, tokens) if mixes else None,
            delta=delta_work(memory, deltas, tokens),
            indexer=IndexWork.of(memory, choices, context, tokens),
            sampler=SamplerWork.of(
                memory, graph.logits.width, sequences or tokens, sampled=sequences > 0
            ),
        )


class Planner:
    """How many layers of a model fit a device; the others would run elsewhere."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: HasTensors,
        kv_type: KvType,
        device: Device,
        *,
        context: int,
        tokens: int,
        split_tokens: int,
        sequences: int,
        keep: Collection[str] = (),
    ) -> None:
        """Steps are of `tokens` if all layers are on the device, else of `split_tokens`.

        They decode at most `sequences` sequences. If all layers are there, values to `keep` are.
        """
        self.layers = layer_count(graph)
        self._graph, self._model, self._kv_type = graph, model, kv_type
        self._device, self._context = device, context
        self._tokens, self._split_tokens = tokens, split_tokens
        self._sequences, self._keep = sequences, keep
        self._known: dict[int, GpuPlan] = {}

    def plan(self, layers: int) -> GpuPlan:
        """Plan the first so many layers; with the output if these are all."""
        if layers not in self._known:
            whole = layers == self.layers
            if not whole and self._graph.encoder is not None:
                raise GraphError("an encoder-decoder runs on one device: set gpu_layers to all")
            graph = self._graph if whole else cut(self._graph, layers).first
            self._known[layers] = GpuPlan.of(
                graph,
                self._model,
                KvLayout.of(graph.kv_layers, self._kv_type, graph.states),
                self._device,
                context=self._context,
                tokens=self._tokens if whole else self._split_tokens,
                sequences=self._sequences,
                keep=self._keep if whole else (),
            )
        return self._known[layers]

    def needs(self, layers: int) -> Needs:
        """What the first so many layers take."""
        return self.plan(layers).needs

    def fits(self, layers: int, room: int, blocks: int, states: int = 0) -> bool:
        """Whether so many layers fit, with a cache of that size; not if there is no cut."""
        try:
            return self.needs(layers).total(blocks, states) <= room
        except GraphError:  # more than the residual would cross
            return False

    def most_layers(self, room: int, blocks: int, states: int = 0) -> int:
        """The most that fit; 0: not one."""
        if self.fits(self.layers, room, blocks, states):
            return self.layers
        places = [0] if self._graph.encoder is not None else [0, *cut_places(self._graph)]
        least, most = 0, len(places) - 1
        while least < most:
            middle = (least + most + 1) // 2
            if self.fits(places[middle], room, blocks, states):
                least = middle
            else:
                most = middle - 1
        return places[least]
