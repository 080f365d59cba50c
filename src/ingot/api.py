"""LLM: a model file, ready to use from Python.

from ingot import LLM
llm = LLM("model.gguf")
print(llm.generate("The capital of France is", max_tokens=16).text)
for piece in llm.stream("Once upon a time"):
    print(piece, end="")
"""

import os
from collections.abc import Iterator, Sequence
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine import Completion, Generation, LoadedModel, Progress
from ingot.tokenizer import Tokenizer

_PIECE_BYTES = 128 << 20  # of logits at a time: 127 positions of a vocabulary of 262,144 tokens


class LLM:
    """A model on the CPU.

    Any thread may call it. `generate` and `logits` take turns; a stream shares the model with
    them, step by step, so a loop over one may call the others. Together they hold at most
    `context` tokens; one that finds no room raises `CacheFullError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        context: int | None = None,
        kv_type: str = "f16",
        weights: str = "map",
    ) -> None:
        """Open a model; all that can be wrong with it is said here.

        `threads`: default INGOT_THREADS or the cores this process may use. `context`: tokens
        to make room for, default what the model allows, at most 8192. `kv_type`: how keys and
        values are stored: f32, f16, bf16, q8_0 or q4_0. `weights`: "map" uses them where they
        are in the file, "lock" also keeps them in memory, "read" copies them.
        """
        self._model = LoadedModel(
            path, threads=threads, context=context, kv_type=kv_type, weights=weights
        )
        self.path = self._model.file.path
        self.model = self._model.file
        self.graph = self._model.graph
        self.context = self._model.context
        self.threads = self._model.threads
        self.tokenizer = Tokenizer.from_metadata(self.model.metadata)
        self._turn = Lock()

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Completion:
        """Continue a prompt (text or token ids) until the model ends or max_tokens is reached."""
        with self._turn:
            written = self.stream(prompt, max_tokens=max_tokens, temperature=temperature, seed=seed)
            text = "".join(written)
        assert written.finish_reason is not None
        return Completion(text, written.token_ids, written.finish_reason, written.timings)

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> Generation:
        """The same, piece by piece as it is written.

        `progress` is told how many tokens of the prompt are done, and of how many.
        """
        return Generation(
            self._model,
            self.tokenizer,
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            progress=progress,
        )

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits [tokens, vocabulary]: what the model expects after each token."""
        ids = self._model.check_ids(token_ids)
        rows = np.empty((len(ids), self.graph.logits.width), np.float32)
        with self._turn:
            for start, piece in self.logit_pieces(ids):
                rows[start : start + len(piece)] = piece
        return rows

    def logit_pieces(
        self, token_ids: Sequence[int] | NDArray[np.integer], first: int = 0
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The rows of `logits` from position `first` on, some at a time, as (position, rows).

        Memory stays bounded however large the vocabulary is.
        """
        ids = self._model.check_ids(token_ids)
        step = self._model.step_tokens
        most = min(step, max(1, _PIECE_BYTES // (4 * self.graph.logits.width)))
        sequence = self._model.sequence()
        try:
            start = 0
            while start < len(ids):
                wanted = start >= first
                chunk = ids[start : start + (most if wanted else min(step, first - start))]
                outputs = np.arange(len(chunk) if wanted else 0, dtype=np.int32)
                rows = self._model.step([sequence], [chunk], outputs, ExecutionPhase.PROMPT)
                if wanted:
                    yield start, rows
                start += len(chunk)
        finally:
            sequence.close()

    def close(self) -> None:
        """Free everything, after the step that may be running.

        A generation that is not at its end raises `ModelError` at its next step.
        """
        self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM({str(self.path)!r}, threads={self.threads}, context={self.context})"
