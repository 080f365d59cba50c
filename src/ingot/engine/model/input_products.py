"""Products of what goes into the matrices of a model, X^T X, on a text.

In: an open file and chunks of tokens. Out: for a matrix, the root of the products of its inputs
(`ingot.quantize.compensation`). They are large, so that only some are in memory at once: the text
runs again for the next ones. Matrices are expected in the order of the file.
"""

from collections.abc import Sequence

import numpy as np

from ingot.arrays import Floats, Ints
from ingot.engine.model.chunk_runner import ChunkRunner
from ingot.gguf import GgufLoader
from ingot.graph import ops as o
from ingot.models import build_graph
from ingot.quantize.compensation import root_of

_BYTES = 1 << 30  # of all products that are in memory at once
_KEPT_BYTES = 1 << 28  # of all inputs of a step, if it has more than the least tokens
_WIDEST = 8192  # inputs of a matrix; the products of more take too much memory
_LEAST, _MOST = 16, 512  # tokens of a step


class InputProducts:
    """The roots of the products of inputs, matrix by matrix."""

    def __init__(self, file: GgufLoader, chunks: Sequence[Ints], *, threads: int) -> None:
        self._file = file
        self._chunks = chunks
        self._threads = threads
        self._longest = max(map(len, chunks))
        self._graph = build_graph(file, self._longest, hidden=True)
        self._sources = self._find_sources()
        self._roots: dict[str, Floats | None] = {}  # by the name of the input

    def _find_sources(self) -> dict[str, o.Value]:
        """The input of each matrix of the layers that has one, in the order of the file."""
        found: dict[str, o.Value] = {}
        several = set()
        for op in self._graph.ops:
            if isinstance(op, o.Linear) and op.layer is not None and op.source.width <= _WIDEST:
                name = op.weight.name
                if found.setdefault(name, op.source).name != op.source.name:
                    several.add(name)
        return {
            name: found[name]
            for name, tensor in self._file.tensors.items()
            if name in found.keys() - several
            and len(tensor.shape) == 2
            and tensor.shape[1] == found[name].width
        }

    def root(self, name: str) -> Floats | None:
        """The root for a matrix; None if its inputs were not looked at."""
        source = self._sources.get(name)
        if source is None:
            return None
        if source.name not in self._roots:
            self._roots = {}
            self._measure(self._next_sources(name))
        return self._roots[source.name]

    def _next_sources(self, name: str) -> dict[str, int]:
        """The inputs of a matrix and of as many after it as fit in memory, with their widths."""
        names = list(self._sources)
        chosen: dict[str, int] = {}
        size = 0
        for each in names[names.index(name) :]:
            source = self._sources[each]
            size += 0 if source.name in chosen else 4 * source.width**2
            if chosen and size > _BYTES:
                break
            chosen[source.name] = source.width
        return chosen

    def _measure(self, widths: dict[str, int]) -> None:
        """Run the text."""
        step = min(max(_KEPT_BYTES // (4 * sum(widths.values())), _LEAST), _MOST)
        runner = ChunkRunner(
            self._graph,
            self._file,
            chunk=self._longest,
            step=step,
            threads=self._threads,
            keep=widths,
        )
        products = {name: np.zeros((width, width), np.float32) for name, width in widths.items()}
        for chunk in self._chunks:
            for tokens, _ in runner.steps(chunk):
                for name, width in widths.items():
                    rows = runner.kept(name, width, tokens.stop - tokens.start)
                    products[name] += rows.T @ rows
        for name in widths:
            self._roots[name] = root_of(products.pop(name))
