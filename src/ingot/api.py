"""LLM: a model file, ready to use from Python.

from ingot import LLM
llm = LLM("model.gguf")
print(llm.generate("The capital of France is", max_tokens=16).text)
for piece in llm.stream("Once upon a time"):
    print(piece, end="")
"""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import Batch, ExecutionPhase
from ingot.backends.cpu import CpuBackend
from ingot.config import config
from ingot.errors import ContextLengthError, ModelError
from ingot.gguf import GgmlType, GgufLoader
from ingot.graph.kv_layout import BLOCK_TOKENS, KV_TYPES, KvLayout
from ingot.kvcache import BlockPool
from ingot.kvcache import Sequence as KvSequence
from ingot.models import build_graph
from ingot.sampling import choose
from ingot.tokenizer import StreamDecoder, Tokenizer
from ingot.tokenizer.chat_template import ChatTemplate

_DEFAULT_CONTEXT = 8192  # tokens, where the model allows as many


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds and tokens of one generation."""

    prompt_tokens: int
    prompt_seconds: float
    generated_tokens: int
    generation_seconds: float


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str  # "stop": the model ended it; "length": max_tokens or the context did
    timings: Timings


Progress = Callable[[int, int], None]  # prompt tokens done, prompt tokens in all


class LLM:
    """A model on the CPU. One generation at a time; calls from several threads take turns."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        context: int | None = None,
        kv_type: str = "f16",
    ) -> None:
        self._lock = Lock()
        self.path = Path(path)
        self.model = GgufLoader(self.path)
        self.graph = build_graph(self.model)
        self.tokenizer = Tokenizer.from_metadata(self.model.metadata)
        self.context = self._check_context(context)
        layout = KvLayout.of(self.graph.kv_layers, _kv_type(kv_type))
        blocks = -(-self.context // BLOCK_TOKENS)
        self._check_memory(blocks * sum(group.block_bytes for group in layout.groups))
        self._backend = CpuBackend(
            self.graph,
            self.model,
            layout,
            blocks=blocks,
            context=self.context,
            threads=config().threads if threads is None else threads,
        )
        self._pool = BlockPool(layout, blocks)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Completion:
        """Continue a prompt (text or token ids) until the model ends or max_tokens is reached."""
        written = self.stream(prompt, max_tokens=max_tokens, temperature=temperature, seed=seed)
        text = "".join(written)
        return Completion(text, written.token_ids, written.finish_reason, written.timings)

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> "Generation":
        """The same, piece by piece as it is written."""
        return Generation(
            self,
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            progress=progress,
        )

    def chat_ids(self, text: str) -> list[int]:
        """The tokens of a conversation's first turn, as the model's chat template puts it."""
        template = ChatTemplate.from_metadata(self.model.metadata)
        prompt = template.render([{"role": "user", "content": text}])
        return self.tokenizer.encode(
            prompt.text, add_special=False, parse_special=True, plain_spans=prompt.plain_spans
        )

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits [tokens, vocabulary]: what the model expects after each token."""
        ids = self._check_ids(token_ids)
        rows = []
        with self._lock:
            sequence = KvSequence(self._pool)
            try:
                for start in range(0, len(ids), self._backend.max_tokens):
                    chunk = ids[start : start + self._backend.max_tokens]
                    rows.append(self._step(sequence, chunk, np.arange(len(chunk), dtype=np.int32)))
            finally:
                sequence.close()
        return np.concatenate(rows)

    def timed_tokens(self, depth: int, prompt: int, generated: int) -> float:
        """Seconds that a prompt and then single tokens take after `depth` tokens of context."""
        size = self.graph.vocabulary_size
        ids = ((np.arange(depth + prompt) * 7919 + 13) % size).astype(np.int32)
        none, one = np.empty(0, np.int32), np.zeros(1, np.int32)
        with self._lock:
            sequence = KvSequence(self._pool)
            try:
                for start in range(0, depth, self._backend.max_tokens):
                    self._step(sequence, ids[start:depth][: self._backend.max_tokens], none)
                started = time.perf_counter()
                for start in range(depth, depth + prompt, self._backend.max_tokens):
                    chunk = ids[start : start + self._backend.max_tokens]
                    self._step(sequence, chunk, np.array([len(chunk) - 1], np.int32))
                for index in range(generated):
                    token = np.array([(index * 31 + 7) % size], np.int32)
                    self._step(sequence, token, one, ExecutionPhase.GENERATION)
                return time.perf_counter() - started
            finally:
                sequence.close()

    def close(self) -> None:
        """Close the file."""
        self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _step(
        self,
        sequence: KvSequence,
        ids: NDArray[np.int32],
        outputs: NDArray[np.int32],
        phase: ExecutionPhase = ExecutionPhase.PROMPT,
    ) -> NDArray[np.float32]:
        """Run the next tokens of one sequence."""
        first = sequence.length
        batch = Batch(
            ids=ids,
            positions=np.arange(first, first + len(ids), dtype=np.int32),
            counts=np.array([len(ids)], np.int32),
            tables=[sequence.grow(len(ids))],
            outputs=outputs,
            phase=phase,
        )
        logits = self._backend.forward(batch)
        sequence.release_passed()
        return logits

    def _check_ids(self, token_ids: Sequence[int]) -> NDArray[np.int32]:
        size = self.graph.vocabulary_size
        ids = np.asarray(token_ids, dtype=np.int64)
        if ids.ndim != 1 or ids.size == 0:
            raise ModelError("the prompt is empty: at least one token is needed")
        if ids.min() < 0 or ids.max() >= size:
            raise ModelError(f"a token id is outside the vocabulary of {size}")
        if ids.size > self.context:
            raise ContextLengthError(
                f"{ids.size} tokens do not fit the context of {self.context}; "
                "shorten the prompt or open the model with a larger context"
            )
        return ids.astype(np.int32)

    def _check_context(self, context: int | None) -> int:
        trained = self.graph.context_length
        if context is None:
            return min(trained, _DEFAULT_CONTEXT)
        if not 1 <= context <= trained:
            raise ContextLengthError(f"context is {context}; this model allows 1 to {trained}")
        return context

    def _check_memory(self, cache_bytes: int) -> None:
        pages, page = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        free = _available_memory(pages * page)
        if cache_bytes > free:
            raise ModelError(
                f"a context of {self.context} tokens takes {cache_bytes >> 20} MiB of cache, and "
                f"{free >> 20} MiB are free: choose a smaller context or a smaller kv_type"
            )


class Generation(Iterator[str]):
    """A text as it is written: iterate for its pieces; numbers are right at any time.

    Ending early (`close`, or leaving a loop and dropping it) frees its part of the cache.
    """

    def __init__(
        self,
        llm: LLM,
        prompt: str | Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int | None,
        progress: Progress | None = None,
    ) -> None:
        if max_tokens < 0:
            raise ModelError(f"max_tokens is {max_tokens}; it must be 0 or more")
        if not (temperature >= 0.0 and np.isfinite(temperature)):
            raise ModelError(f"temperature is {temperature}; it must be 0 or a positive number")
        self._llm = llm
        ids = llm.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        self._prompt = llm._check_ids(ids)
        self._room = min(max_tokens, llm.context - len(self._prompt))
        self._temperature = temperature
        self._random = np.random.default_rng(seed)
        self._progress = progress
        self._token_ids: list[int] = []
        self._ended = False
        self._prompt_seconds = 0.0
        self._generation_seconds = 0.0
        self._pieces = self._write()

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop; what was written stays."""
        self._pieces.close()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens written so far."""
        return tuple(self._token_ids)

    @property
    def finish_reason(self) -> str:
        """`stop`: the model ended the text; `length`: max_tokens or the context did."""
        return "stop" if self._ended else "length"

    @property
    def timings(self) -> Timings:
        """Tokens and seconds so far."""
        return Timings(
            prompt_tokens=len(self._prompt),
            prompt_seconds=self._prompt_seconds,
            generated_tokens=len(self._token_ids),
            generation_seconds=self._generation_seconds,
        )

    def _write(self) -> Generator[str]:
        llm, decoder = self._llm, StreamDecoder(self._llm.tokenizer)
        with llm._lock:
            sequence = KvSequence(llm._pool)
            try:
                logits = self._run_prompt(sequence)
                started = time.perf_counter()
                while len(self._token_ids) < self._room:
                    token = choose(logits, self._temperature, self._random)
                    if token in llm.tokenizer.eog_ids:
                        self._ended = True
                        break
                    self._token_ids.append(token)
                    if piece := decoder.push(token):
                        yield piece
                    if len(self._token_ids) < self._room:
                        logits = self._run_token(sequence, token)
                    self._generation_seconds = time.perf_counter() - started
            finally:
                sequence.close()
        if rest := decoder.flush():
            yield rest

    def _run_prompt(self, sequence: KvSequence) -> NDArray[np.float32]:
        started = time.perf_counter()
        size = self._llm._backend.max_tokens
        for start in range(0, len(self._prompt), size):
            chunk = self._prompt[start : start + size]
            last = start + size >= len(self._prompt)
            wanted = np.array([len(chunk) - 1] if last else [], np.int32)
            logits = self._llm._step(sequence, chunk, wanted)
            if self._progress:
                self._progress(start + len(chunk), len(self._prompt))
        self._prompt_seconds = time.perf_counter() - started
        row: NDArray[np.float32] = logits[0]
        return row

    def _run_token(self, sequence: KvSequence, token: int) -> NDArray[np.float32]:
        ids, first = np.array([token], np.int32), np.zeros(1, np.int32)
        logits = self._llm._step(sequence, ids, first, ExecutionPhase.GENERATION)
        row: NDArray[np.float32] = logits[0]
        return row


def _kv_type(name: str) -> GgmlType:
    for kind in KV_TYPES:
        if kind.name.lower() == name.lower():
            return kind
    known = ", ".join(kind.name.lower() for kind in KV_TYPES)
    raise ModelError(f"kv_type is {name!r}; it must be one of {known}")


def _available_memory(fallback: int) -> int:
    """Bytes the system can give without swapping: free ones and caches it can drop."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return fallback
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return fallback
