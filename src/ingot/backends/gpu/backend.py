"""Build the launches of a model once, then run them for every batch.

A graph, its open file and the size of the cache come in, as for the CPU; `forward` turns a batch
into logits. Weights are sent to the device when the backend is made. Steps of a generation are
captured once for 1, 2, 4, ... sequences and replayed.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.gpu import attention, linear
from ingot.backends.gpu.attention import (
    AttentionLauncher,
    AttentionWork,
    CacheView,
    HeadNorm,
    Rotary,
)
from ingot.backends.gpu.device import Device
from ingot.backends.gpu.inputs import InputBuffer, query_tiles
from ingot.backends.gpu.kernels.norm import norm_kernel
from ingot.backends.gpu.kernels.rows import embed_kernel, select_kernel, softcap_kernel
from ingot.backends.gpu.linear import Epilogue, LinearLauncher, Workspace
from ingot.backends.gpu.matrices import MatrixPlan, MatrixStore, plan_embedding, plan_linear
from ingot.backends.gpu.memory import DeviceMemory, aligned
from ingot.backends.gpu.planes import CHUNK, Planes
from ingot.backends.gpu.replay import Replay
from ingot.backends.gpu.step import Step
from ingot.backends.gpu.upload import Uploader
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph, MemoryPlan
from ingot.graph import ops as o
from ingot.graph.fusion import (
    FusedGraph,
    FusedLinear,
    FusedNorm,
    FusedOp,
    LinearPart,
    StoreKv,
    fuse,
)
from ingot.graph.kv_layout import KvLayout
from ingot.quant import decode

_ACTIVATIONS = {
    None: 0,
    o.Activation.SILU: 1,
    o.Activation.GELU: 2,
    o.Activation.GELU_TANH: 3,
    o.Activation.RELU_SQUARED: 4,
}
# Values that no norm has brought to size are halved four times on their way to half floats: 10^6
# is then the largest, and what is lost below 10^-3 is no loss beside it.
_HALF_SCALE = 0.0625
_BIAS_ROOM = 128  # a kernel's last block may read behind the rows


Launch = Callable[[Step], None]


class GpuBackend:
    """A model ready to run on the GPU."""

    def __init__(
        self,
        graph: ComputationGraph,
        model: GgufLoader,
        layout: KvLayout,
        *,
        blocks: int,
        context: int,
        device: Device,
        max_tokens: int = 4096,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """`progress` is told how many bytes of the weights are sent, and of how many."""
        attention.check_kv_type(layout.type)
        self.layout = layout
        self.max_tokens = max_tokens
        self.device = device
        self.memory = DeviceMemory(device.torch)
        self.uploader = Uploader(device.torch)
        self._model = model
        self._context = context
        self._vocabulary = graph.logits.width
        self._floats: dict[str, torch.Tensor] = {}
        self._rotaries: dict[tuple[tuple[float, ...], float, o.RopeLayout], Rotary] = {}
        fused = fuse(graph)
        last = fused.ops[-1]
        self._cap = last.cap if isinstance(last, o.SoftCap) else 0.0
        if isinstance(last, o.SoftCap):  # in place, where the logits go
            fused = FusedGraph(fused.ops[:-1], last.source, fused.kv_layers)
        self._graph = fused
        self._halves = _half_values(fused)
        self.plan = MemoryPlan.of(fused)

        plans = _matrix_plans(fused, model)
        sizes = {
            "weights": sum(plan.nbytes for plan in plans),
            "arena": self.plan.size * max_tokens,
            "cache": sum(blocks * group.block_bytes for group in layout.groups),
        }
        self.memory.require(
            sum(sizes.values()), "choose a smaller context, a smaller model or device='cpu'"
        )
        self.pools = [
            self.memory.pool(blocks * group.block_bytes).memory for group in layout.groups
        ]
        self._arena = self.memory.pool(sizes["arena"]).memory.view(torch.float32)
        self._store = MatrixStore(model, self.memory.pool(sizes["weights"]), self.uploader)
        matrices = []
        total = sum(model.tensors[name].nbytes for plan in plans for name in plan.names)
        for plan in plans:
            matrices.append(self._store.get(plan))
            if progress:
                progress(self.uploader.sent, total)
        self._linear = LinearLauncher(device, self._workspace(matrices))
        self._attention = AttentionLauncher(device, context, self._attention_work())
        width = max((p.sizes.chunks * CHUNK for p in matrices), default=CHUNK)
        heads = [op.query.width for op in fused.ops if isinstance(op, o.Attend)]
        pool = self.memory.pool(2 * max_tokens * (width + max(heads, default=1)) + 512)
        self._x = pool.take(2 * max_tokens * width).view(torch.float16)
        self._turned = pool.take(2 * max_tokens * max(heads, default=1)).view(torch.float16)
        self._inputs = InputBuffer(
            device.torch,
            tokens=max_tokens,
            sequences=min(max_tokens, blocks),
            groups=len(layout.groups),
            blocks=-(-context // 32),
        )
        self._selected = False
        self._launches: list[tuple[Launch, bool]] = []
        for op in fused.ops:
            self._launches.append((self._launch(op), self._selected))
        if self._cap:
            self._launches.append((self._softcap, True))
        self.uploader.close()
        self._replay = Replay(self, self._vocabulary)
        if not device.interpreted:
            torch.cuda.synchronize(device.torch)
            torch.cuda.empty_cache()  # what packing needed

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary]."""
        if batch.phase is ExecutionPhase.GENERATION and self._replay.takes(batch):
            return self._replay.run(batch)
        tokens, wanted = len(batch.ids), len(batch.outputs)
        if tokens > self.max_tokens:
            raise ModelError(f"a step takes at most {self.max_tokens} tokens, not {tokens}")
        prompt = batch.phase is ExecutionPhase.PROMPT
        tiles = query_tiles(batch) if prompt else np.empty((0, 3), np.int32)
        inputs = self._inputs.fill(
            batch, tokens=tokens, wanted=wanted, tiles=tiles, sequences=len(batch.counts)
        )
        logits = torch.empty(
            (wanted, self._vocabulary), dtype=torch.float32, device=self.device.torch
        )
        self.launch(Step(inputs, batch.phase, logits))
        found: NDArray[np.float32] = logits.cpu().numpy()
        return found

    def launch(self, step: Step) -> None:
        """Start every kernel of a step."""
        for run, selected in self._launches:
            if step.inputs.wanted_count or not selected:
                run(step)

    @property
    def inputs(self) -> InputBuffer:
        """Where the numbers of a batch go."""
        return self._inputs

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Give a block of the cache the content of another one."""
        size, pool = self.layout.groups[group].block_bytes, self.pools[group]
        pool[target * size : (target + 1) * size] = pool[source * size : (source + 1) * size]

    def read_block(self, group: int, index: int) -> NDArray[np.uint8]:
        """The bytes of a block of the cache."""
        size = self.layout.groups[group].block_bytes
        found: NDArray[np.uint8] = (
            self.pools[group][index * size : (index + 1) * size].cpu().numpy()
        )
        return found

    def write_block(self, group: int, index: int, data: NDArray[np.uint8]) -> None:
        """Give a block of the cache these bytes."""
        size = self.layout.groups[group].block_bytes
        self.pools[group][index * size : (index + 1) * size] = torch.from_numpy(data)

    def _workspace(self, matrices: Sequence[Planes]) -> Workspace:
        sums = max((linear.work_floats(planes, self.device) for planes in matrices), default=0)
        counters = max((planes.sizes.rows // 32 for planes in matrices), default=0)
        scratch = max((p.sizes.rows * p.sizes.chunks * CHUNK for p in matrices), default=0)
        pool = self.memory.pool(aligned(4 * sums) + aligned(4 * counters) + aligned(2 * scratch))
        return Workspace(
            pool.take(4 * sums).view(torch.float32),
            pool.take(4 * counters).view(torch.int32),
            pool.take(2 * scratch).view(torch.float16),
        )

    def _attention_work(self) -> AttentionWork:
        ops = [op for op in self._graph.ops if isinstance(op, o.Attend)]
        parts = -(-self._context // attention.part_positions(self._context))
        rows = attention.MAX_TOKENS * parts * max((op.heads for op in ops), default=0)
        width = max(
            (triton.next_power_of_2(max(16, op.query.width // op.heads)) for op in ops), default=0
        )
        counters = attention.MAX_TOKENS * max((op.kv_heads for op in ops), default=0)
        sizes = (4 * rows * width, 4 * rows, 4 * rows, 4 * counters)
        pool = self.memory.pool(sum(aligned(size) for size in sizes))
        mixed, best, total = (pool.take(size).view(torch.float32) for size in sizes[:3])
        return AttentionWork(mixed, best, total, pool.take(sizes[3]).view(torch.int32))

    def _value(self, value: o.Value) -> torch.Tensor:
        """A value's memory, as floats or halves [tokens, width], flat."""
        start = self.plan.slots[value.name].offset // 4 * self.max_tokens
        room = self._arena[start : start + self.max_tokens * value.width]
        return room.view(torch.float16) if value.name in self._halves else room

    def _vector(self, weight: o.Weight | None) -> torch.Tensor | None:
        if weight is None:
            return None
        if weight.name not in self._floats:
            tensor = self._model.tensors[weight.name]
            values = torch.from_numpy(decode(tensor.data, tensor.type))
            self._floats[weight.name] = values.to(self.device.torch)
        return self._floats[weight.name]

    def _rotary(self, rope: o.Rope) -> Rotary:
        key = rope.frequencies, rope.magnitude, rope.layout
        if key not in self._rotaries:
            self._rotaries[key] = Rotary.of(rope, self._context, self.device.torch)
        return self._rotaries[key]

    def _cache(self, layer: int) -> CacheView:
        pool = self.pools[self.layout.places[layer].group]
        return CacheView.of(self.layout, layer, self._graph.kv_layers[layer], pool)

    def _launch(self, op: FusedOp) -> Launch:
        match op:
            case o.Embed():
                return self._embed(op)
            case FusedLinear():
                return self._fused_linear(op)
            case FusedNorm():
                return self._norm(op.norm, op.residual, op.out)
            case StoreKv():
                return self._store_kv(op)
            case o.Attend():
                return self._attend(op)
            case o.Select():
                launch = self._select(op)
                self._selected = True  # so is every value from here on
                return launch
            case _:
                raise ModelError(f"the GPU backend has no {type(op).__name__}")

    def _rows(self, step: Step, selected: bool) -> int:
        return step.inputs.wanted_count if selected else step.inputs.tokens

    def _embed(self, op: o.Embed) -> Launch:
        planes = self._store.get(plan_embedding(op, self._model))
        out, width = self._value(op.out), op.out.width

        def launch(step: Step) -> None:
            embed_kernel[(planes.sizes.chunks, step.inputs.tokens)](
                step.inputs.ids,
                planes.codes,
                planes.extras,
                planes.scales,
                planes.sizes.chunks,
                planes.factor * op.scale,
                out,
                width,
                **planes.form.constants(),
                num_warps=1,
            )

        return launch

    def _norm(
        self,
        norm: o.Norm | None,
        residual: o.Value | None,
        out: o.Value | None,
        source: o.Value | None = None,
        stride: int = 0,
    ) -> Launch:
        """To a value of its own, or as halves of a linear map's input."""
        source = norm.source if norm else source
        assert source is not None
        x, width, selected = self._value(source), source.width, self._selected
        target = self._value(out) if out else self._x
        weight, bias = (
            (self._vector(norm.weight), self._vector(norm.bias)) if norm else (None, None)
        )
        added = self._value(residual) if residual else None
        kind = 0 if norm is None else 2 if norm.kind is o.NormKind.LAYER else 1
        scale = 1.0 if norm else _HALF_SCALE
        length = width if out else stride

        def launch(step: Step) -> None:
            norm_kernel[(self._rows(step, selected),)](
                x,
                weight,
                bias,
                added,
                target,
                width,
                length,
                norm.epsilon if norm else 0.0,
                scale,
                BLOCK=triton.next_power_of_2(max(width, length)),
                NORM=kind,
                BIAS=bias is not None,
                RESIDUAL=added is not None,
                HALF=out is None,
                num_warps=8,
            )

        return launch

    def _fused_linear(self, op: FusedLinear) -> Launch:
        groups = plan_linear(op, self._model)
        halves_in = op.source.name in self._halves and op.norm is None
        stride = op.source.width
        before: Launch | None = None
        x = self._value(op.source) if halves_in else self._x
        if not halves_in:
            stride = max(plan.sizes.chunks for plan, _ in groups) * CHUNK
            before = self._norm(op.norm, None, None, op.source, stride)
        factor = 1.0 if op.norm else 1.0 / _HALF_SCALE
        selected = self._selected
        gated = op.activation is not None and len(op.parts) == 2
        half_out = op.parts[0].out.name in self._halves
        runs = []
        for plan, parts in groups:
            stored = parts[:1] if gated else parts
            logits = stored[0].out == self._graph.logits
            residual = parts[0].residual
            epilogue = Epilogue(
                firsts=(0,) if gated else plan.starts,
                widths=tuple(part.out.width for part in stored),
                bases=(0,) if logits else tuple(self._offset(part.out) for part in stored),
                bias=self._bias(plan, parts),
                residual=self._value(residual) if residual else None,
                activation=_ACTIVATIONS[op.activation],
                gated=gated,
                half=half_out,
            )
            out = self._arena.view(torch.float16) if half_out else self._arena
            runs.append((self._store.get(plan), epilogue, None if logits else out))

        def launch(step: Step) -> None:
            if before:
                before(step)
            for planes, epilogue, out in runs:
                self._linear.run(
                    planes,
                    x,
                    stride,
                    self._rows(step, selected),
                    step.phase,
                    factor,
                    step.logits if out is None else out,
                    _HALF_SCALE,
                    epilogue,
                )

        return launch

    def _offset(self, value: o.Value) -> int:
        """Where a value begins in the arena, in its own elements."""
        start = self.plan.slots[value.name].offset // 4 * self.max_tokens
        return 2 * start if value.name in self._halves else start

    def _bias(self, plan: MatrixPlan, parts: Sequence[LinearPart]) -> torch.Tensor | None:
        """The biases of all parts, row by row as the matrix has them."""
        vectors = [self._vector(part.bias) for part in parts]
        if all(vector is None for vector in vectors):
            return None
        bias = torch.zeros(plan.sizes.rows + _BIAS_ROOM, device=self.device.torch)
        for index, vector in enumerate(vectors):
            if vector is None:
                continue
            if plan.interleaved:
                bias[index : len(parts) * len(vector) : len(parts)] = vector
            else:
                bias[plan.starts[index] : plan.starts[index] + len(vector)] = vector
        return bias

    def _store_kv(self, op: StoreKv) -> Launch:
        query, key, value = (self._value(item) for item in (op.query, op.key, op.value))
        norms = (self._head_norm(op.query_norm), self._head_norm(op.key_norm))
        rotary = self._rotary(op.rope) if op.rope else None
        cache = self._cache(op.layer)
        heads, kv_heads = (item.width // cache.head_size for item in (op.query, op.key))

        def launch(step: Step) -> None:
            self._attention.store(
                query,
                key,
                value,
                self._turned,
                norms,
                rotary,
                cache,
                step.inputs,
                self._inputs.blocks,
                heads,
                kv_heads,
            )

        return launch

    def _head_norm(self, norm: o.Norm | None) -> HeadNorm:
        return HeadNorm(self._vector(norm.weight), norm.epsilon) if norm else HeadNorm(None, 0.0)

    def _attend(self, op: o.Attend) -> Launch:
        cache, sinks, out = self._cache(op.layer), self._vector(op.sinks), self._value(op.out)

        def launch(step: Step) -> None:
            self._attention.attend(
                op,
                self._turned,
                out,
                _HALF_SCALE,
                sinks,
                cache,
                step.inputs,
                self._inputs.blocks,
                step.phase,
            )

        return launch

    def _select(self, op: o.Select) -> Launch:
        x, width = self._value(op.source), op.source.width
        logits = op.out == self._graph.logits
        target = None if logits else self._value(op.out)

        def launch(step: Step) -> None:
            select_kernel[(triton.cdiv(width, 1024), step.inputs.wanted_count)](
                x,
                step.inputs.wanted,
                step.logits if target is None else target,
                width,
                BLOCK=1024,
            )

        return launch

    def _softcap(self, step: Step) -> None:
        grid = (triton.cdiv(self._vocabulary, 1024), step.inputs.wanted_count)
        softcap_kernel[grid](
            step.logits,
            step.logits,
            self._vocabulary,
            self._cap,
            BLOCK=1024,
        )


def _half_values(graph: FusedGraph) -> frozenset[str]:
    """Values that only linear maps read, as they are: attention's and activations'.

    They are stored as half floats, the form in which they are read. A selection of such a value is
    one, too.
    """
    readers: dict[str, list[FusedOp]] = {}
    for op in graph.ops:
        for value in op.inputs:
            readers.setdefault(value.name, []).append(op)

    def plain(value: o.Value) -> bool:
        found = readers.get(value.name, [])
        return bool(found) and all(
            (isinstance(op, FusedLinear) and op.source == value and not op.norm)
            or (isinstance(op, o.Select) and plain(op.out))
            for op in found
        )

    halves = set()
    for op in graph.ops:
        made = isinstance(op, o.Attend) or (isinstance(op, FusedLinear) and op.activation)
        if made and plain(op.outputs[0]):
            halves.add(op.outputs[0].name)
        if isinstance(op, o.Select) and op.source.name in halves:
            halves.add(op.out.name)
    return frozenset(halves)


def _matrix_plans(graph: FusedGraph, model: GgufLoader) -> list[MatrixPlan]:
    """Every matrix of a graph, once each, in order of first use."""
    plans: dict[MatrixPlan, None] = {}
    for op in graph.ops:
        if isinstance(op, o.Embed):
            plans[plan_embedding(op, model)] = None
        elif isinstance(op, FusedLinear):
            plans.update(dict.fromkeys(plan for plan, _ in plan_linear(op, model)))
    return list(plans)
