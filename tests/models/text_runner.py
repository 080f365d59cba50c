"""Runs encoder-decoders on the CPU, as an engine does: prompts, then tokens after them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.backends.cpu import CpuBackend
from ingot.backends.encoder_decoder import EncoderDecoder
from ingot.gguf import GgufLoader
from ingot.graph import ComputationGraph
from ingot.graph.kv_layout import KvLayout
from run_batches import GENERATION, Runner

CONTEXT = 256
Rows = NDArray[np.float32]


class Programs(EncoderDecoder):
    """With the memory that the runner spoils."""

    def __init__(self, encoder: CpuBackend, decoder: CpuBackend) -> None:
        super().__init__(encoder, decoder)
        self.pools = decoder.pools


class TextRunner(Runner):
    """Sequences of a prompt and what is written after it."""

    def __init__(self, graph: ComputationGraph, model: GgufLoader, **sizes: Any) -> None:
        super().__init__(graph, model, **{"positions": CONTEXT, **sizes})
        self.read: dict[object, int] = {}

    def make_backend(
        self, graph: ComputationGraph, model: GgufLoader, layout: KvLayout, **sizes: Any
    ) -> Programs:
        assert graph.encoder is not None
        sizes["precision"] = self.precision
        decoder = CpuBackend(graph, model, layout, **sizes)
        return Programs(
            CpuBackend(graph.encoder, model, layout, pools=decoder.pools, **sizes), decoder
        )

    def encode(self, prompts: dict[object, list[int]]) -> dict[object, Rows]:
        """Read prompts: the encoder's rows."""
        self.read |= {name: len(prompt) for name, prompt in prompts.items()}
        return self.step(prompts)

    def write(self, tokens: dict[object, list[int]]) -> dict[object, Rows]:
        """Run the next tokens after prompts: their logits."""
        return self.step(tokens, GENERATION, encoded=self.read)

    def text(self, prompt: list[int], written: list[int], *chunks: int) -> Rows:
        """The logits of what is written, in chunks; what is left over is one more."""
        self.encode({"text": prompt})
        rows, start = [], 0
        for end in [*np.cumsum(chunks).tolist(), len(written)]:
            if start < end:
                rows.append(self.write({"text": written[start:end]})["text"])
                start = end
        self.end("text")
        return np.concatenate(rows)
