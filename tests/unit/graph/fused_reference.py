"""What fused operations compute, in NumPy: their parts, one after the other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.backends.reference import operations as do
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.graph.fusion import (
    ExpertGate,
    ExpertMix,
    FusedGateRows,
    FusedGraph,
    FusedLinear,
    FusedNorm,
    StoreKv,
)
from ingot.quant import decode

Matrix = NDArray[np.floating[Any]]


class FusedReference:
    """Interprets a fused graph for one sequence from its start, in float64."""

    def __init__(self, graph: FusedGraph, model: GgufLoader) -> None:
        self.graph = graph
        self._model = model

    def forward(self, token_ids: list[int], outputs: list[int]) -> Matrix:
        """Logits of the tokens wanted."""
        ids, positions = np.array(token_ids), np.arange(len(token_ids))
        values: dict[str, Matrix] = {}
        caches: dict[int, tuple[Matrix, Matrix]] = {}
        for op in self.graph.ops:
            match op:
                case o.Embed():
                    x = self._weight(op.weight)[ids] * op.scale
                    x = x + self._weight(op.positions)[positions] if op.positions else x
                    values[op.out.name] = x + self._weight(op.type) if op.type else x
                case FusedLinear():
                    self._linear(op, values)
                case FusedNorm():
                    y = self._norm(op.norm, values[op.norm.source.name])
                    values[op.out.name] = y + values[op.residual.name] if op.residual else y
                case StoreKv():
                    for value, norm in ((op.query, op.query_norm), (op.key, op.key_norm)):
                        x = values[value.name]
                        x = self._norm(norm, x) if norm else x
                        values[value.name] = do.rope(x, positions, op.rope) if op.rope else x
                    caches[op.layer] = values[op.key.name], values[op.value.name]
                case o.Attend():
                    sinks = self._weight(op.sinks) if op.sinks else None
                    query = values[op.query.name]
                    values[op.out.name] = do.attend(query, *caches[op.layer], positions, op, sinks)
                case o.Select():
                    values[op.out.name] = values[op.source.name][outputs]
                case o.Route():
                    bias = self._weight(op.selection_bias) if op.selection_bias else None
                    values[op.out.name] = do.route(values[op.scores.name], op, bias)
                case ExpertGate():
                    parts = [self._experts(part, values) for part in (op.gate, op.up) if part]
                    values[op.out.name] = do.activate(op.activation, *parts)
                case ExpertMix():
                    parts = self._experts(op.linear, values)
                    y = do.mix_experts(parts, values[op.linear.choice.name])
                    values[op.out.name] = y + values[op.residual.name] if op.residual else y
                case FusedGateRows():
                    y = do.sigmoid(values[op.gated.gate.name]) * values[op.gated.source.name]
                    values[op.out.name] = y + values[op.residual.name] if op.residual else y
                case o.SoftCap():
                    values[op.out.name] = do.softcap(values[op.source.name], op.cap)
        return values[self.graph.logits.name]

    def _linear(self, op: FusedLinear, values: dict[str, Matrix]) -> None:
        x = values[op.source.name]
        if op.norm:
            x = self._norm(op.norm, x)
        results = []
        for part in op.parts:
            bias = self._weight(part.bias) if part.bias else None
            y = do.linear(x, part.scale, self._weight(part.weight), bias)
            results.append(y + values[part.residual.name] if part.residual else y)
        if op.activation:
            results = [do.activate(op.activation, *results)]
        for value, result in zip(op.outputs, results, strict=True):
            values[value.name] = result

    def _experts(self, op: o.ExpertLinear, values: dict[str, Matrix]) -> Matrix:
        bias = self._weight(op.bias) if op.bias else None
        x, choice = values[op.source.name], values[op.choice.name]
        return do.expert_linear(x, choice, self._weight(op.weight), bias)

    def _norm(self, norm: o.Norm, x: Matrix) -> Matrix:
        bias = self._weight(norm.bias) if norm.bias else None
        return do.norm(x, norm.kind, norm.epsilon, self._weight(norm.weight), bias)

    def _weight(self, weight: o.Weight) -> Matrix:
        tensor = self._model.tensors[weight.name]
        values = decode(tensor.data, tensor.type, weight.tensor_shape)
        return values[weight.rows].astype(np.float64)
