"""What fused operations compute, in NumPy: their parts, one after the other.

Operations that fusion leaves as they are run in the reference itself.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.backends.reference import Cache, attention, experts, linear, rows
from ingot.backends.reference.step import Matrix, Step, compute
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.graph.fusion import FusedGraph
from ingot.quant import decode


class FusedReference:
    """Interprets a fused graph for the tokens of one sequence, in float64."""

    def __init__(self, graph: FusedGraph, model: GgufLoader) -> None:
        self.graph = graph
        self._tensors = {
            weight.name: decode(
                model.tensors[weight.name].data,
                model.tensors[weight.name].type,
                weight.tensor_shape,
            ).astype(np.float64)
            for op in graph.ops
            for weight in op.weights
        }

    def forward(
        self, token_ids: list[int], outputs: list[int], cache: Cache | None = None
    ) -> NDArray[np.floating[Any]]:
        """Logits of the tokens wanted, after what the cache holds."""
        cache = cache or Cache()
        step = Step(
            ids=np.array(token_ids),
            positions=np.arange(cache.length, cache.length + len(token_ids)),
            types=np.zeros(len(token_ids), np.int64),
            outputs=outputs,
            rows=None,
            cache=cache,
            tensors=self._tensors,
            dtype=np.float64,
        )
        for op in self.graph.ops:
            step.values.update(_run(op, step, self.graph.kv_layers))
        cache.length += len(token_ids)
        return step.values[self.graph.logits.name]


@singledispatch
def _run(op: o.Op, step: Step, _layers: Sequence[o.KvLayer]) -> dict[str, Matrix]:
    result = compute(op, step)
    return {} if result is None else {op.outputs[0].name: result}


def _normed(norm: o.Normalization | None, x: Matrix, step: Step) -> Matrix:
    if norm is None:
        return x
    return rows.norm(
        x, norm.kind, norm.epsilon, step.optional(norm.weight), step.optional(norm.bias), norm.run
    )


def _plus(x: Matrix, residual: o.Value | None, step: Step) -> Matrix:
    return x + step.value(residual) if residual else x


@_run.register
def _(op: o.FusedNorm, step: Step, _layers: object) -> dict[str, Matrix]:
    y = _normed(op.norm, step.value(op.source), step)
    return {op.out.name: _plus(y, op.residual, step)}


@_run.register
def _(op: o.FusedGateRows, step: Step, _layers: object) -> dict[str, Matrix]:
    gate = step.value(op.gate)
    y = (rows.sigmoid(gate) if op.sigmoid else gate) * step.value(op.source)
    return {op.out.name: _plus(y, op.residual, step)}


@_run.register
def _(op: o.FusedLinear, step: Step, _layers: object) -> dict[str, Matrix]:
    x = _normed(op.norm, step.value(op.source), step)
    results = []
    for part in op.parts:
        y = linear.linear(x, part.scale, step.weight(part.weight), step.optional(part.bias))
        results.append(_plus(y, part.residual, step))
    if op.activation:
        results = [rows.activate(op.activation, *results)]
    return {value.name: y for value, y in zip(op.outputs, results, strict=True)}


@_run.register
def _(op: o.StoreKv, step: Step, kv_layers: Sequence[o.KvLayer]) -> dict[str, Matrix]:
    changed = {}
    layer = kv_layers[op.kv_layer]
    sizes = layer.head_size, layer.key_width if layer.shared_value else layer.head_size
    for value, norm, size in zip(
        (op.query, op.key), (op.query_norm, op.key_norm), sizes, strict=True
    ):
        if value is None:
            continue
        x = step.value(value)
        if op.rope and op.norms_last:
            x = attention.rope(x, step.positions, op.rope, size)
        x = _normed(norm, x, step)
        if op.rope and not op.norms_last:
            x = attention.rope(x, step.positions, op.rope, size)
        changed[value.name] = x
    key, held = changed[op.key.name], step.value(op.value)
    stored = np.concatenate([key, held], axis=1) if layer.shared_value else key
    step.cache.store(op.kv_layer, stored, held)
    return changed


@_run.register
def _(op: o.ExpertGate, step: Step, _layers: object) -> dict[str, Matrix]:
    parts = [_experts(op, part, step) for part in op.parts]
    return {op.out.name: rows.activate(op.activation, *parts)}


@_run.register
def _(op: o.ExpertMix, step: Step, _layers: object) -> dict[str, Matrix]:
    part = o.ExpertPart(weight=op.weight, bias=op.bias, first=0, rows=op.weight.shape[1])
    parts = _experts(op, part, step)
    y = experts.mix_experts(parts, step.value(op.choice))
    return {op.out.name: _plus(y, op.residual, step)}


def _experts(op: o.ExpertGate | o.ExpertMix, part: o.ExpertPart, step: Step) -> Matrix:
    x, choice = step.value(op.source), step.value(op.choice)
    read = slice(part.first, part.first + part.rows)
    weight, bias = step.weight(part.weight)[:, read], step.optional(part.bias)
    return experts.expert_linear(x, choice, weight, None if bias is None else bias[:, read])
