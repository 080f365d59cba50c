"""Interpret a graph for the tokens of one sequence.

Token ids and a `Cache` (what the sequence has said so far) come in, logits of every token
go out. Knows nothing of batches, blocks of cache or threads.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.backends.reference import operations as do
from ingot.backends.reference.recurrent import causal_conv, state_scan
from ingot.errors import ModelError
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph import ops as o
from ingot.quant import decode

Matrix = NDArray[Any]


@dataclass(slots=True)
class Cache:
    """What is left of one sequence: keys and values, per layer [positions, width], and states."""

    keys: dict[int, Matrix] = field(default_factory=dict)
    values: dict[int, Matrix] = field(default_factory=dict)
    states: dict[int, Matrix] = field(default_factory=dict)  # of recurrent operations
    length: int = 0


@dataclass(frozen=True, slots=True)
class _Places:
    """Of each token of a step: its id, its position and its type."""

    ids: Matrix
    positions: Matrix
    types: Matrix


class Reference:
    """A model run in NumPy, in float32 or float64."""

    def __init__(
        self, graph: ComputationGraph, model: GgufLoader, dtype: type[np.floating[Any]] = np.float32
    ) -> None:
        self.graph = graph
        self._dtype = dtype
        self._weights = {
            weight.name: decode(
                model.tensors[weight.name].data,
                model.tensors[weight.name].type,
                weight.tensor_shape,
            ).astype(dtype)
            for weight in graph.weights()
        }

    def forward(
        self,
        token_ids: list[int],
        cache: Cache | None = None,
        outputs: list[int] | None = None,
        types: list[int] | None = None,
        rows: Matrix | None = None,
    ) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary] of the tokens that follow what the cache holds.

        `outputs` are the tokens whose logits are wanted, by their place; None means all. `types`
        are those of the tokens, where the model tells them apart; None means 0. `rows` [tokens,
        width] are for a graph that begins with them.
        """
        cache = Cache() if cache is None else cache
        ids = np.asarray(token_ids, dtype=np.int64)
        size = self.graph.vocabulary_size
        if ids.ndim != 1 or ids.size == 0 or ids.min() < 0 or (size and ids.max() >= size):
            raise ModelError(f"token ids must be a non-empty list of numbers from 0 to {size - 1}")
        if cache.length and not self.graph.causal:
            raise ModelError("tokens that see later ones cannot be added to a sequence")
        places = _Places(
            ids,
            np.arange(cache.length, cache.length + len(ids)),
            np.zeros(len(ids), np.int64) if types is None else np.asarray(types, np.int64),
        )
        values: dict[str, Matrix] = {}
        for op in self.graph.ops:
            inputs = [values[value.name] for value in op.inputs]
            if isinstance(op, o.Select):
                result: Matrix | None = inputs[0] if outputs is None else inputs[0][outputs]
            elif isinstance(op, o.TakeRows):
                if rows is None or rows.shape != (len(ids), op.out.width):
                    raise ModelError(f"the graph begins with {len(ids)} rows of {op.out.width}")
                result = rows.astype(self._dtype)
            else:
                result = self._run(op, inputs, places, cache)
            if result is not None:
                values[op.outputs[0].name] = result
        cache.length += len(ids)
        return values[self.graph.logits.name].astype(np.float32)

    def _run(self, op: o.Op, inputs: list[Matrix], at: _Places, cache: Cache) -> Matrix | None:
        weights = [self._weights[weight.name][weight.rows] for weight in op.weights]
        match op:
            case o.Embed():
                rows: Matrix = weights[0][at.ids] * self._dtype(op.scale)
                if op.positions:
                    rows = rows + weights[1][at.positions]
                return rows + weights[-1][at.types] if op.types else rows
            case o.Norm():
                return do.norm(inputs[0], op.kind, op.epsilon, *weights)
            case o.Linear():
                return do.linear(inputs[0], op.scale, *weights)
            case o.Rope():
                return do.rope(inputs[0], at.positions, op)
            case o.WriteKv(layer=layer):
                for store, new in ((cache.keys, inputs[0]), (cache.values, inputs[1])):
                    store[layer] = np.concatenate([store[layer], new]) if layer in store else new
                return None
            case o.Attend(layer=layer):
                return do.attend(
                    inputs[0], cache.keys[layer], cache.values[layer], at.positions, op, *weights
                )
            case o.Activate(kind=kind):
                return do.activate(kind, *inputs)
            case o.Add():
                return inputs[0] + inputs[1]
            case o.SoftCap(cap=cap):
                return do.softcap(inputs[0], cap)
            case _:
                return _run_special(op, inputs, weights, cache)


def _run_special(op: o.Op, inputs: list[Matrix], weights: list[Matrix], cache: Cache) -> Matrix:
    """What only some networks have: experts and recurrent operations."""
    match op:
        case o.CausalConv(state=number):
            past = cache.states.get(number)
            out, cache.states[number] = causal_conv(inputs[0], past, *weights)
            return out
        case o.StateScan(state=number):
            x, step, b, c = inputs
            past = cache.states.get(number)
            out, cache.states[number] = state_scan(x, step, b, c, op, past, *weights)
            return out
        case o.Route():
            return do.route(inputs[0], op, *weights)
        case o.ExpertLinear():
            return do.expert_linear(inputs[0], inputs[1], *weights)
        case o.MixExperts():
            return do.mix_experts(inputs[0], inputs[1])
        case o.GateRows():
            gated: Matrix = do.sigmoid(inputs[1]) * inputs[0]
            return gated
        case _:
            raise ModelError(f"the reference backend has no {type(op).__name__}")
