"""Graphs of one operation, made by hand, and the file that holds their weights.

A token's embedding row is the input of the operation under test: its values are known
exactly, because `pick` cuts pieces out of it with matrices of zeros and ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.backends.reference import Cache, Reference
from ingot.backends.reference.step import Matrix
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.graph import ComputationGraph, KvLayer
from ingot.graph import ops as o
from ingot.graph.kv_type import KvType
from ingot.quant import decode, encode
from ops.fp8_rows import fp8_rows

Floats = NDArray[np.float32]


class SmallGraph:
    """Operations and weights, collected one by one."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.ops: list[o.Op] = []
        self.kv_layers: list[KvLayer] = []
        self._weights: dict[str, tuple[NDArray[np.uint8], GgmlType, tuple[int, ...]]] = {}

    def value(self, width: int) -> o.Value:
        """A new value."""
        return o.Value(f"value{len(self.ops)}", width)

    def weight(self, values: Floats, type: GgmlType = GgmlType.F32) -> o.Weight:
        """A new tensor of the file."""
        name = f"weight{len(self._weights)}"
        data = encode(values.astype(np.float32), type)
        self._weights[name] = data, type, values.shape
        return o.Weight(name, values.shape)

    def random(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> Floats:
        """Values of a normal distribution."""
        return (self.rng.standard_normal(shape) * scale + offset).astype(np.float32)

    def embed(self, values: Floats, scale: float = 1.0) -> o.Value:
        """Token t's value is row t."""
        out = self.value(values.shape[1])
        self.ops.append(o.Embed(weight=self.weight(values), out=out, scale=scale))
        return out

    def pick(self, source: o.Value, begin: int, end: int) -> o.Value:
        """Elements [begin, end) of a value."""
        return self.linear(source, np.eye(source.width, dtype=np.float32)[begin:end])

    def linear(
        self,
        source: o.Value,
        matrix: Floats,
        bias: Floats | None = None,
        type: GgmlType = GgmlType.F32,
    ) -> o.Value:
        """A linear map."""
        out = self.value(len(matrix))
        self.ops.append(
            o.Linear(
                source=source,
                out=out,
                weight=self.weight(matrix, type),
                bias=None if bias is None else self.weight(bias),
            )
        )
        return out

    def norm(
        self,
        source: o.Value,
        weight: Floats | None,
        bias: Floats | None = None,
        kind: o.NormKind = o.NormKind.RMS,
        epsilon: float = 1e-6,
    ) -> o.Value:
        """A norm."""
        out = self.value(source.width)
        self.ops.append(
            o.Norm(
                source=source,
                out=out,
                weight=None if weight is None else self.weight(weight),
                bias=None if bias is None else self.weight(bias),
                kind=kind,
                epsilon=epsilon,
            )
        )
        return out

    def add(self, left: o.Value, right: o.Value) -> o.Value:
        """The sum of two values."""
        out = self.value(left.width)
        self.ops.append(o.Add(left=left, right=right, out=out))
        return out

    def select(self, source: o.Value) -> o.Value:
        """The rows whose logits are wanted."""
        out = self.value(source.width)
        self.ops.append(o.Select(source=source, out=out))
        return out

    def build(self, logits: o.Value, path: Path) -> tuple[ComputationGraph, GgufLoader]:
        """The graph, and its weights in a file."""
        writer = GgufWriter(path)
        writer.add("general.architecture", "none")
        for name, (data, type, shape) in self._weights.items():
            writer.add_tensor(name, data, type, shape)
        writer.write()
        graph = ComputationGraph(tuple(self.ops), logits, tuple(self.kv_layers), 1 << 20)
        return graph, GgufLoader(path)


@dataclass(slots=True, kw_only=True)
class StoringCache(Cache):
    """A cache that stores keys and values in a type of fewer bits."""

    kv_type: KvType
    kv_layers: Sequence[KvLayer]

    def store(self, kv_layer: int, key: Matrix, value: Matrix) -> None:
        layer = self.kv_layers[kv_layer]
        key = self._rounded(key, layer)
        latent = key[:, layer.key_width :]
        value = latent if layer.shared_value else self._rounded(value, layer)
        Cache.store(self, kv_layer, key, value)

    def _rounded(self, rows: Matrix, layer: KvLayer) -> Matrix:
        return stored(rows, self.kv_type, layer.head_size).astype(rows.dtype)


def stored(x: Floats, type: KvType, head_size: int) -> Floats:
    """Keys or values as a cache gives them back."""
    if type.ggml is None:
        return fp8_rows(x.reshape(-1, head_size)).reshape(x.shape)
    return decode(encode(x.astype(np.float32), type.ggml), type.ggml, x.shape)


def expected_logits(
    graph: ComputationGraph,
    model: GgufLoader,
    ids: Sequence[int],
    kv_type: KvType = KvType.F32,
) -> NDArray[np.float64]:
    """What the reference computes in float64, for every token."""
    cache = StoringCache(kv_type=kv_type, kv_layers=graph.kv_layers)
    return Reference(graph, model, np.float64).forward(list(ids), cache).astype(np.float64)


def assert_near(actual: Floats, expected: NDArray[np.float64], relative: float) -> None:
    """Each element is near, relative to itself or to its row."""
    size = np.abs(expected) + np.sqrt(np.mean(expected**2, axis=-1, keepdims=True))
    error = np.abs(actual - expected) / np.maximum(size, 1e-30)
    assert np.isfinite(actual).all()
    assert error.max() <= relative, (
        f"{error.max():.3g} at {np.unravel_index(error.argmax(), error.shape)}"
    )
