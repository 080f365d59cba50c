"""From the operations of a fused graph to launches: all that does not change is decided once.

Each method takes an operation and gives back a function of a step that launches its kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import triton

from ingot.backends.gpu.attention import AttentionLauncher, CacheView, HeadNorm, Heads
from ingot.backends.gpu.experts import ExpertLauncher
from ingot.backends.gpu.kernels.mix import gate_rows_kernel
from ingot.backends.gpu.kernels.norm import norm_kernel
from ingot.backends.gpu.kernels.rows import embed_kernel, select_kernel, softcap_kernel
from ingot.backends.gpu.linear import Epilogue, LinearLauncher, LinearMap, Rows
from ingot.backends.gpu.matrices import (
    MatrixPlan,
    MatrixStore,
    plan_embedding,
    plan_experts,
    plan_linear,
)
from ingot.backends.gpu.planes import CHUNK
from ingot.backends.gpu.step import Launch, Program, Step
from ingot.backends.gpu.values import HALF_SCALE, Values
from ingot.backends.gpu.vectors import Vectors
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.graph.fusion import (
    ExpertGate,
    ExpertMix,
    FusedGateRows,
    FusedGraph,
    FusedLinear,
    FusedNorm,
    FusedOp,
    LinearPart,
    StoreKv,
)
from ingot.graph.kv_layout import KvLayout

_ACTIVATIONS = {
    None: 0,
    o.Activation.SILU: 1,
    o.Activation.GELU: 2,
    o.Activation.GELU_TANH: 3,
    o.Activation.RELU_SQUARED: 4,
    o.Activation.CLAMPED_SWIGLU: 5,
    o.Activation.TANH: 6,
    o.Activation.SOFTPLUS: 7,
}
_BIAS_ROOM = 128  # a kernel's last block may read behind the rows


@dataclass(slots=True)
class Lowering:
    """What the launches of a model need."""

    graph: FusedGraph
    cap: float  # of the logits; 0: none
    model: GgufLoader
    values: Values
    vectors: Vectors
    store: MatrixStore
    linear: LinearLauncher
    attention: AttentionLauncher
    experts: ExpertLauncher | None
    layout: KvLayout
    pools: Sequence[torch.Tensor]
    table_blocks: int  # of a row of a block table
    x: torch.Tensor  # halves: the input of a linear map
    turned: torch.Tensor  # halves: queries
    chosen: torch.Tensor  # tokens of the step before
    selected: bool = False
    heads: dict[int, Heads] = field(default_factory=dict)  # of the layers so far
    ready: o.Norm | None = None  # whose output is in x

    def run(self) -> Program:
        """The launches in order. They know this, so it does not keep them: both go at once."""
        launches = []
        for op, behind in zip(self.graph.ops, (*self.graph.ops[1:], None), strict=True):
            launch = self._mix(op, behind) if isinstance(op, ExpertMix) else self._launch(op)
            launches.append((launch, self.selected))
        if self.cap:
            launches.append((self._softcap(), True))
        return Program(launches)

    def _launch(self, op: FusedOp) -> Launch:
        match op:
            case o.Embed():
                return self._embed(op)
            case FusedLinear():
                return self._fused_linear(op)
            case FusedNorm():
                return self._fused_norm(op)
            case StoreKv():
                return self._store_kv(op)
            case o.Attend():
                return self._attend(op)
            case o.Select():
                launch = self._select(op)
                self.selected = True  # so is every value from here on
                return launch
            case o.Route():
                return self._route(op)
            case ExpertGate():
                return self._expert_gate(op)
            case FusedGateRows():
                return self._gate_rows(op)
            case _:
                raise ModelError(f"the GPU backend has no {type(op).__name__}")

    def _embed(self, op: o.Embed) -> Launch:
        planes = self.store.get(plan_embedding(op, self.model))
        out, width = self.values.tensor(op.out), op.out.width
        positions = self.vectors.get(op.positions)
        order = self.linear.device.order()

        def launch(step: Step) -> None:
            embed_kernel[(planes.sizes.chunks, step.inputs.tokens)](
                step.inputs.ids,
                self.chosen,
                step.inputs.positions,
                planes.codes,
                planes.extras,
                planes.scales,
                planes.sizes.chunks,
                planes.factor * op.scale,
                positions,
                out,
                width,
                **planes.form.constants(),
                POSITIONS=positions is not None,
                num_warps=1,
                **order,
            )

        return launch

    def _norm(
        self,
        source: o.Value,
        norm: o.Norm | None,
        target: torch.Tensor,
        stride: int,
        scale: float = 1.0,
        residual: o.Value | None = None,
    ) -> Launch:
        """Rows of `stride`, floats or halves as the target is; without a norm only scaled."""
        x, width, selected = self.values.tensor(source), source.width, self.selected
        order = self.linear.device.order()
        weight = self.vectors.get(norm.weight) if norm else None
        bias = self.vectors.get(norm.bias) if norm else None
        added = self.values.tensor(residual) if residual else None
        kind = 0 if norm is None else 2 if norm.kind is o.NormKind.LAYER else 1

        def launch(step: Step) -> None:
            norm_kernel[(step.rows(selected),)](
                x,
                weight,
                bias,
                added,
                target,
                width,
                stride,
                norm.epsilon if norm else 0.0,
                scale,
                BLOCK=triton.next_power_of_2(max(width, stride)),
                NORM=kind,
                BIAS=bias is not None,
                RESIDUAL=added is not None,
                HALF=target.dtype == torch.float16,
                num_warps=8,
                **order,
            )

        return launch

    def _fused_norm(self, op: FusedNorm) -> Launch:
        norm, out = op.norm, op.out
        target = self.values.tensor(out)
        return self._norm(norm.source, norm, target, out.width, residual=op.residual)

    def _input(
        self, source: o.Value, norm: o.Norm | None, chunks: int
    ) -> tuple[list[Launch], torch.Tensor, int, float]:
        """The input of a linear map as halves: what makes it, its memory, stride and scale."""
        if norm and norm is self.ready:
            self.ready = None
            return [], self.x, chunks * CHUNK, 1.0
        if norm is None and source.name in self.values.halves:
            return [], self.values.tensor(source), source.width, self.values.scale(source)
        stride, scale = chunks * CHUNK, 1.0 if norm else HALF_SCALE
        return [self._norm(source, norm, self.x, stride, scale)], self.x, stride, scale

    def _fused_linear(self, op: FusedLinear) -> Launch:
        groups = plan_linear(op, self.model)
        most = max(plan.sizes.chunks for plan, _ in groups)
        before, x, stride, scale = self._input(op.source, op.norm, most)
        selected = self.selected
        gated = op.activation is not None and len(op.parts) == 2
        half = op.parts[0].out.name in self.values.halves
        maps = []
        logits = op.parts[0].out == self.graph.logits
        for plan, parts in groups:
            stored = parts[:1] if gated else parts
            residual = parts[0].residual
            epilogue = Epilogue(
                firsts=(0,) if gated else plan.starts,
                widths=tuple(part.out.width for part in stored),
                bases=(0,) if logits else tuple(self.values.offset(part.out) for part in stored),
                bias=self._bias(plan, parts),
                residual=self.values.tensor(residual) if residual else None,
                activation=_ACTIVATIONS[op.activation],
                gated=gated,
                half=half,
            )
            maps.append(LinearMap(self.store.get(plan), parts[0].scale / scale, epilogue))
        arena = self.values.arena.view(torch.float16) if half else self.values.arena

        def launch(step: Step) -> None:
            for run in before:
                run(step)
            out = step.logits if logits else arena
            inputs = Rows(x, stride, step.rows(selected))
            self.linear.run(maps, inputs, step.phase, out, HALF_SCALE)

        return launch

    def _bias(self, plan: MatrixPlan, parts: Sequence[LinearPart]) -> torch.Tensor | None:
        """The biases of all parts, times their scales, row by row as the matrix has them."""
        vectors = [self.vectors.get(part.bias) for part in parts]
        if all(vector is None for vector in vectors):
            return None
        bias = torch.zeros(plan.sizes.rows + _BIAS_ROOM, device=self.x.device)
        for index, (part, vector) in enumerate(zip(parts, vectors, strict=True)):
            if vector is None:
                continue
            if plan.interleaved:
                bias[index : len(parts) * len(vector) : len(parts)] = vector * part.scale
            else:
                start = plan.starts[index]
                bias[start : start + len(vector)] = vector * part.scale
        return bias

    def _store_kv(self, op: StoreKv) -> Launch:
        """Where sequences have one token each, attention stores, and only whole norms are left."""
        cache = self._cache(op.layer)
        before: list[Launch] = []
        norms: list[HeadNorm] = []
        for item, norm in ((op.query, op.query_norm), (op.key, op.key_norm)):
            if norm and norm.bias:
                raise ModelError("the GPU backend has no norms of heads with biases")
            whole = norm is not None and _length(norm) != cache.head_size
            if norm is not None and whole:  # of all heads together
                before.append(self._norm(item, norm, self.values.tensor(item), item.width))
            norms.append(self._head_norm(None if whole else norm))
        heads = Heads(
            query=self.values.tensor(op.query),
            key=self.values.tensor(op.key),
            value=self.values.tensor(op.value),
            query_norm=norms[0],
            key_norm=norms[1],
            rotary=self.vectors.rotary(op.rope) if op.rope else None,
            count=op.query.width // cache.head_size,
            kv_count=op.key.width // cache.head_size,
        )
        self.heads[op.layer] = heads

        def launch(step: Step) -> None:
            for run in before:
                run(step)
            if not step.single:
                self.attention.store(heads, self.turned, cache, step.inputs, self.table_blocks)

        return launch

    def _head_norm(self, norm: o.Norm | None) -> HeadNorm:
        if norm is None or norm.weight is None:
            return HeadNorm()
        each = norm.weight.shape[-1] if len(norm.weight.shape) > 1 else 0
        layer = norm.kind is o.NormKind.LAYER
        return HeadNorm(self.vectors.get(norm.weight), each, norm.epsilon, layer)

    def _cache(self, layer: int) -> CacheView:
        pool = self.pools[self.layout.places[layer].group]
        return CacheView.of(self.layout, layer, self.graph.kv_layers[layer], pool)

    def _attend(self, op: o.Attend) -> Launch:
        cache, sinks = self._cache(op.layer), self.vectors.get(op.sinks)
        out, heads = self.values.tensor(op.out), self.heads[op.layer]

        def launch(step: Step) -> None:
            self.attention.attend(
                op,
                heads,
                self.turned,
                out,
                HALF_SCALE,
                sinks,
                cache,
                step,
                self.table_blocks,
            )

        return launch

    def _select(self, op: o.Select) -> Launch:
        x, width = self.values.tensor(op.source), op.source.width
        target = None if op.out == self.graph.logits else self.values.tensor(op.out)
        order = self.linear.device.order()

        def launch(step: Step) -> None:
            select_kernel[(triton.cdiv(width, 1024), step.inputs.wanted_count)](
                x,
                step.inputs.wanted,
                step.logits if target is None else target,
                width,
                BLOCK=1024,
                **order,
            )

        return launch

    def _softcap(self) -> Launch:
        """In place, where the logits go."""
        width, cap, order = self.graph.logits.width, self.cap, self.linear.device.order()

        def launch(step: Step) -> None:
            logits, grid = step.logits, (triton.cdiv(width, 1024), step.inputs.wanted_count)
            softcap_kernel[grid](logits, logits, width, cap, BLOCK=1024, **order)

        return launch

    def _route(self, op: o.Route) -> Launch:
        assert self.experts, "there are experts"
        experts, selected = self.experts, self.selected
        scores, out = self.values.tensor(op.scores), self.values.tensor(op.out)
        bias = self.vectors.get(op.selection_bias)
        return lambda step: experts.route(
            op, scores, bias, out, step, step.rows(selected), selected
        )

    def _expert_gate(self, op: ExpertGate) -> Launch:
        parts = [op.gate, op.up] if op.up else [op.gate]
        used = op.gate.choice.width // 2
        gated = len(parts) == 2
        return self._expert_linear(
            op, parts, op.gate.source, self.values.tensor(op.out), op.out.width // used, gated
        )

    def _expert_linear(
        self,
        op: ExpertGate | ExpertMix,
        parts: Sequence[o.ExpertLinear],
        source: o.Value,
        out: torch.Tensor,
        width: int,
        gated: bool,
    ) -> Launch:
        assert self.experts, "there are experts"
        experts, selected = self.experts, self.selected
        plan = plan_experts(op, self.model)
        planes, choice = self.store.get(plan), self.values.tensor(parts[0].choice)
        before, x, stride, scale = self._input(source, None, planes.sizes.chunks)
        used = parts[0].choice.width // 2
        own = source.width == used * plan.columns and used > 1
        bias = self._expert_bias(plan, parts)
        activation = _ACTIVATIONS[op.activation if isinstance(op, ExpertGate) else None]

        def launch(step: Step) -> None:
            for run in before:
                run(step)
            experts.run(
                planes,
                plan.expert_rows,
                plan.experts,
                used,
                x,
                plan.columns if own else stride,
                scale,
                own,
                choice,
                bias,
                out,
                width,
                HALF_SCALE,
                activation,
                gated,
                step,
                step.rows(selected),
            )

        return launch

    def _expert_bias(
        self, plan: MatrixPlan, parts: Sequence[o.ExpertLinear]
    ) -> torch.Tensor | None:
        """Row by row as the matrix has them."""
        if all(part.bias is None for part in parts):
            return None
        bias = torch.zeros(plan.experts, plan.expert_rows, device=self.x.device)
        for index, part in enumerate(parts):
            vector = self.vectors.get(part.bias)
            if vector is not None:
                rows = len(parts) * plan.rows[index]
                bias[:, index : rows : len(parts)] = vector.view(plan.experts, -1)
        return bias

    def _mix(self, op: ExpertMix, behind: FusedOp | None) -> Launch:
        """With the norm that follows, if it is that of a linear map."""
        assert self.experts, "there are experts"
        experts, selected, width = self.experts, self.selected, op.out.width
        linear = self._expert_linear(
            op, [op.linear], op.linear.source, experts.work.parts, width, gated=False
        )
        choice, out = self.values.tensor(op.linear.choice), self.values.tensor(op.out)
        residual = self.values.tensor(op.residual) if op.residual else None
        count, used = op.linear.weight.shape[0], op.linear.choice.width // 2
        norm = weight = None
        stride = 0
        if isinstance(behind, FusedLinear) and behind.source == op.out and _is_rms(behind.norm):
            self.ready = norm = behind.norm
            weight = self.vectors.get(norm.weight) if norm else None
            plans = plan_linear(behind, self.model)
            stride = max(plan.sizes.chunks for plan, _ in plans) * CHUNK

        def launch(step: Step) -> None:
            linear(step)
            experts.mix(
                choice,
                count,
                used,
                residual,
                out,
                width,
                step.rows(selected),
                weight,
                norm.epsilon if norm else 0.0,
                self.x,
                stride,
            )

        return launch

    def _gate_rows(self, op: FusedGateRows) -> Launch:
        x, gate = self.values.tensor(op.gated.source), self.values.tensor(op.gated.gate)
        residual = self.values.tensor(op.residual) if op.residual else None
        out, width, selected = self.values.tensor(op.out), op.out.width, self.selected
        order = self.linear.device.order()

        def launch(step: Step) -> None:
            gate_rows_kernel[(triton.cdiv(width, 1024), step.rows(selected))](
                x,
                gate,
                residual,
                out,
                width,
                RESIDUAL=residual is not None,
                BLOCK=1024,
                **order,
            )

        return launch


def _is_rms(norm: o.Norm | None) -> bool:
    return norm is not None and norm.kind is o.NormKind.RMS and norm.bias is None


def _length(norm: o.Norm) -> int | None:
    """Of the runs that a norm is over; None where that is the row."""
    return None if norm.weight is None else norm.weight.shape[-1]
