"""Build the native program of a model once, then run it for every batch.

A graph, its open file and the size of the cache come in; `forward` turns a batch into
logits in one native call. Weights stay in the mapped file. Which block belongs to which
sequence is the caller's business (`ingot.kvcache`).
"""

from collections.abc import Collection
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import _native
from ingot.backends.batch import Batch, ExecutionPhase
from ingot.errors import ModelError, ThreadLimitError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph, MemoryPlan
from ingot.graph import ops as o
from ingot.graph.fusion import (
    ExpertGate,
    ExpertMix,
    FusedGateRows,
    FusedLinear,
    FusedNorm,
    FusedOp,
    StoreKv,
    fuse,
)
from ingot.graph.kv_layout import KvLayout
from ingot.graph.kv_type import KvType
from ingot.graph.states import in_lanes
from ingot.quant import decode

_ACTIVATIONS = {
    o.Activation.SILU: 0,
    o.Activation.GELU: 1,
    o.Activation.GELU_TANH: 2,
    o.Activation.RELU_SQUARED: 3,
    o.Activation.CLAMPED_SWIGLU: 4,
    o.Activation.TANH: 5,
    o.Activation.SOFTPLUS: 6,
}
_GATINGS = {
    o.Gating.SOFTMAX: 0,
    o.Gating.SIGMOID: 1,
    o.Gating.CHOSEN_SOFTMAX: 2,
    o.Gating.SPARSE_MIXER: 3,
}
_NO_TABLES = np.empty(0, np.int32)


class CpuBackend:
    """A model ready to run on the CPU."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        layout: KvLayout,
        *,
        blocks: int,
        context: int,
        threads: int,
        max_tokens: int = 512,
        states: int = 0,
        keep: Collection[str] = (),
    ) -> None:
        """`blocks` of every group of the cache, `states` of that of recurrent operations.

        `keep` names values that `kept` can tell after a step.
        """
        self.layout = layout
        self._kv_type = _stored_as(layout.type)
        self.max_tokens = max_tokens
        self.pools = [
            np.empty((states if group.recurrent else blocks) * group.block_bytes, np.uint8)
            for group in layout.groups
        ]
        self._model = model
        self._vocabulary = graph.logits.width
        self._floats: dict[str, NDArray[np.float32]] = {}
        self._made: list[NDArray[np.float32]] = []  # for the program, which keeps pointers
        self._graph = fuse(graph)
        self.plan = MemoryPlan.of(self._graph, keep)
        linears = [op for op in self._graph.ops if isinstance(op, FusedLinear)]
        try:
            self._program = _native.Program(
                threads=threads,
                arena_bytes_per_token=self.plan.size,
                max_tokens=max_tokens,
                max_positions=context,
                max_width=max((op.source.width for op in linears), default=1),
            )
        except OSError as error:
            raise ThreadLimitError(
                f"the {threads} threads of the model cannot be started ({error.strerror}): ask "
                "for fewer (threads, INGOT_THREADS), end other threads or processes, or raise the "
                "limit (ulimit -u, or pids of the container)"
            ) from None
        self._selected = False
        self._ids: dict[str, int] = {}
        self._rotaries: dict[tuple[tuple[float, ...], float, o.RopeLayout], int] = {}
        for op in self._graph.ops:
            if isinstance(op, StoreKv) and op.rope:
                self._rotary(op.rope)
        for op in self._graph.ops:
            self._add(op)

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        logits = np.empty((len(batch.outputs), self._vocabulary), np.float32)
        tables = [table for tables in batch.tables for table in tables]
        self._program.run(
            ids=batch.ids,
            positions=batch.positions,
            counts=batch.counts,
            tables=np.concatenate(tables) if tables else _NO_TABLES,
            table_ends=np.cumsum([len(table) for table in tables], dtype=np.int32),
            outputs=batch.outputs,
            types=batch.types,
            rows=batch.rows,
            prompt=batch.phase is ExecutionPhase.PROMPT,
            logits=logits,
        )
        return logits

    def kept(self, name: str, tokens: int, out: NDArray[np.float32]) -> None:
        """Copy rows of a value that was to be kept, after a step of so many tokens."""
        self._program.read(value=self._ids[name], tokens=tokens, out=out)

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        size, pool = self.layout.groups[group].block_bytes, self.pools[group]
        pool[target * size : (target + 1) * size] = pool[source * size : (source + 1) * size]

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        size = self.layout.groups[group].block_bytes
        return self.pools[group][index * size : (index + 1) * size]

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        self.read_block(group, index)[:] = data

    def _value(self, value: o.Value) -> int:
        if value.name not in self._ids:
            logits = value == self._graph.logits
            self._ids[value.name] = self._program.value(
                offset=0 if logits else self.plan.slots[value.name].offset,
                width=value.width,
                selected=self._selected,
                logits=logits,
            )
        return self._ids[value.name]

    def _matrix(self, weight: o.Weight) -> Any:
        tensor = self._model.tensors[weight.name]
        if not _native.has_linear(tensor.type):
            raise ModelError(
                f"{self._model.path}: tensor {weight.name} is {tensor.type.name}, which the CPU "
                "cannot multiply; convert it to F32 or to a quantized type"
            )
        return self._weight(weight)

    def _weight(self, weight: o.Weight) -> Any:
        tensor = self._model.tensors[weight.name]
        rows = tensor.data.reshape(weight.tensor_shape[0], -1)[weight.rows]
        return rows.reshape(-1), int(tensor.type), prod(weight.shape[:-1]), weight.shape[-1]

    def _experts(self, linear: o.ExpertLinear) -> Any:
        return self._matrix(linear.weight), self._vector(linear.bias)

    def _vector(self, weight: o.Weight | None) -> NDArray[np.float32] | None:
        return None if weight is None else self._floats_of(weight)

    def _floats_of(self, weight: o.Weight) -> NDArray[np.float32]:
        if weight.name not in self._floats:
            tensor = self._model.tensors[weight.name]
            floats = decode(tensor.data, tensor.type)
            self._floats[weight.name] = floats.reshape(weight.tensor_shape)
        return self._floats[weight.name][weight.rows].reshape(-1)

    def _keep(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        self._made.append(values.reshape(-1))
        return self._made[-1]

    def _norm(self, norm: o.Norm | None) -> Any:
        if norm is None:
            return None
        weight = self._vector(norm.weight)
        if weight is None:
            weight = self._keep(np.ones(norm.run, np.float32))
        layer = norm.kind is o.NormKind.LAYER
        return weight, self._vector(norm.bias), norm.run, norm.epsilon, layer

    def _rotary(self, rope: o.Rope) -> int:
        key = rope.frequencies, rope.magnitude, rope.layout
        if key not in self._rotaries:
            self._rotaries[key] = self._program.rotary(
                speeds=list(rope.frequencies),
                magnitude=rope.magnitude,
                adjacent=rope.layout is o.RopeLayout.ADJACENT,
            )
        return self._rotaries[key]

    def _cache(self, layer: int) -> Any:
        place = self.layout.places[layer]
        group = self.layout.groups[place.group]
        size = self._graph.kv_layers[layer].head_size
        pool = self.pools[place.group]
        return place.group, pool, group.block_bytes, place.offset, self._kv_type, size

    def _state(self, number: int) -> Any:
        place = self.layout.states[number]
        group, pool = self.layout.groups[place.group], self.pools[place.group]
        return place.group, pool, group.block_bytes, place.offset

    def _add_special(self, op: FusedOp) -> None:
        """What only some networks have."""
        value = self._value
        match op:
            case o.TakeRows():
                self._program.take_rows(out=value(op.out))
            case o.Activate():
                self._program.activate(
                    gate=value(op.gate),
                    up=value(op.up) if op.up else None,
                    kind=_ACTIVATIONS[op.kind],
                    out=value(op.out),
                )
            case o.CausalConv():
                weight = self._floats_of(op.weight).reshape(op.weight.shape)
                self._program.causal_conv(
                    source=value(op.source),
                    weight=self._keep(np.ascontiguousarray(weight.T)),  # [taps, channels]
                    bias=self._floats_of(op.bias),
                    out=value(op.out),
                    state=self._state(op.state),
                )
            case o.StateScan():
                self._program.state_scan(
                    x=value(op.x),
                    step=value(op.step),
                    b=value(op.b),
                    c=value(op.c),
                    out=value(op.out),
                    decay=self._keep(in_lanes(op, self._floats_of(op.decay))),
                    skip=self._keep(in_lanes(op, self._floats_of(op.skip))),
                    groups=op.groups,
                    state=self._state(op.state),
                )
            case _:
                raise ModelError(f"the CPU backend has no {type(op).__name__}")

    def _add(self, op: FusedOp) -> None:
        program, value = self._program, self._value
        match op:
            case o.Embed():
                program.embed(
                    weight=self._weight(op.weight),
                    scale=op.scale,
                    positions=self._weight(op.positions) if op.positions else None,
                    types=self._vector(op.types),
                    out=value(op.out),
                )
            case FusedLinear():
                parts = [
                    (
                        self._matrix(part.weight),
                        self._vector(part.bias),
                        part.scale,
                        value(part.residual) if part.residual else None,
                        value(part.out),
                    )
                    for part in op.parts
                ]
                program.linear(
                    source=value(op.source),
                    norm=self._norm(op.norm),
                    parts=parts,
                    activation=None if op.activation is None else _ACTIVATIONS[op.activation],
                )
            case FusedNorm():
                program.norm(
                    norm=self._norm(op.norm),
                    source=value(op.norm.source),
                    residual=value(op.residual) if op.residual else None,
                    out=value(op.out),
                )
            case o.Route():
                program.route(
                    scores=value(op.scores),
                    out=value(op.out),
                    used=op.used,
                    gating=_GATINGS[op.gating],
                    normalize=op.normalize,
                    scale=op.scale,
                    near=op.near,
                    bias=self._vector(op.selection_bias),
                )
            case ExpertGate():
                program.expert_gate(
                    source=value(op.gate.source),
                    choice=value(op.gate.choice),
                    parts=[self._experts(part) for part in (op.gate, op.up) if part],
                    activation=_ACTIVATIONS[op.activation],
                    out=value(op.out),
                )
            case ExpertMix():
                program.expert_mix(
                    source=value(op.linear.source),
                    choice=value(op.linear.choice),
                    part=self._experts(op.linear),
                    residual=value(op.residual) if op.residual else None,
                    out=value(op.out),
                )
            case FusedGateRows():
                program.gate_rows(
                    source=value(op.gated.source),
                    gate=value(op.gated.gate),
                    residual=value(op.residual) if op.residual else None,
                    out=value(op.out),
                )
            case StoreKv():
                program.store_kv(
                    query=value(op.query),
                    key=value(op.key),
                    value=value(op.value),
                    query_norm=self._norm(op.query_norm),
                    key_norm=self._norm(op.key_norm),
                    rotary=self._rotary(op.rope) if op.rope else None,
                    cache=self._cache(op.layer),
                )
            case o.Attend():
                program.attend(
                    query=value(op.query),
                    out=value(op.out),
                    cache=self._cache(op.layer),
                    heads=op.heads,
                    kv_heads=op.kv_heads,
                    scale=op.scale,
                    softcap=op.softcap,
                    window=op.window,
                    sinks=self._vector(op.sinks),
                    causal=op.causal,
                )
            case o.Select():
                source = value(op.source)
                self._selected = True  # so is every value from here on
                program.select(source=source, out=value(op.out))
            case o.SoftCap():
                program.softcap(source=value(op.source), cap=op.cap, out=value(op.out))
            case _:
                self._add_special(op)


def _stored_as(type: KvType) -> int:
    """The number of a storage of keys and values, if the kernels know it."""
    if type.ggml is None:
        known = ", ".join(kind for kind in KvType if kind.ggml is not None)
        raise ModelError(f"the CPU cannot store keys and values as {type}; it can as {known}")
    return int(type.ggml)
