"""How much a model's predictions change if some of its tensors are quantized.

In: an open file of floats and chunks of tokens. Out: for tensors and their types, the mean
Kullback-Leibler divergence of the predictions from those of the original, in nats per token. The
quantized tensors are decoded to the file's own type, so that nothing but their error differs.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ingot.arrays import Bytes, Floats, Ints
from ingot.convert.unwritten import UnwrittenFile
from ingot.engine.model.chunk_runner import ChunkRunner
from ingot.gguf import GgmlType, GgufLoader, GgufWriter
from ingot.gguf.copying import copy_keys, copy_tensor
from ingot.models import build_graph
from ingot.quant import decode, encode
from ingot.quantize import encoded_pieces
from ingot.quantize.imatrix import ImportanceMatrix

_LOGITS = 1 << 26  # floats of the predictions that are compared
_STEP = 512  # tokens


class Sensitivity:
    """The predictions of a model for some chunks, to compare others with."""

    def __init__(
        self,
        source: GgufLoader,
        chunks: Sequence[Ints],
        imatrix: ImportanceMatrix,
        *,
        threads: int,
    ) -> None:
        self._source = source
        self._imatrix = imatrix
        self._threads = threads
        self._replaced: dict[str, Bytes] = {}
        writer = GgufWriter(source.path)
        copy_keys(source, writer)
        for tensor in source.tensors.values():
            copy_tensor(tensor, writer)
        self._file = UnwrittenFile(source.path, writer, self._bytes_of)
        self._graph = build_graph(source, max(map(len, chunks)))
        wanted = max(1, _LOGITS // self._graph.logits.width)
        self._every = -(-sum(map(len, chunks)) // wanted)  # tokens from one compared to the next
        self._chunks = chunks
        self._original = list(self._predictions())

    def divergence(self, types: Mapping[str, GgmlType]) -> float:
        """The mean divergence if these tensors have these types."""
        try:
            for name, kind in types.items():
                self._replaced[name] = self._rounded(name, kind)
            total = sum(
                float((np.exp(a) * (a - b)).sum(dtype=np.float64))
                for a, b in zip(self._original, self._predictions(), strict=True)
            )
        finally:
            self._replaced.clear()
        return max(total, 0.0) / sum(map(len, self._original))

    def _bytes_of(self, name: str) -> Bytes:
        replaced = self._replaced.get(name)
        return self._source.tensors[name].data if replaced is None else replaced

    def _rounded(self, name: str, kind: GgmlType) -> Bytes:
        """A tensor as it is after it was quantized, in its own type."""
        tensor = self._source.tensors[name]
        importance = self._imatrix.of(name, tensor.shape)
        pieces = []
        for blocks in encoded_pieces(tensor, kind, importance):
            values = decode(blocks, kind).reshape(-1, tensor.shape[-1])
            pieces.append(encode(values, tensor.type).reshape(-1))
        return np.concatenate(pieces)

    def _predictions(self) -> Iterator[Floats]:
        """Log-probabilities after some tokens of each step: [tokens, vocabulary]."""
        runner = ChunkRunner(
            self._graph,
            self._file.loader(),
            chunk=max(map(len, self._chunks)),
            step=_STEP,
            threads=self._threads,
        )
        for chunk in self._chunks:
            for _, logits in runner.steps(chunk, every=self._every):
                scores = logits - logits.max(axis=1, keepdims=True)
                yield scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
