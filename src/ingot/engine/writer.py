"""Writes one text: the loop of choosing tokens and running the model.

Comes in: a loaded model, the tokens of a prompt, and a chain that chooses. Goes out: pieces of
text, and what is known about it at any time. Tokens that a grammar leaves no choice about are
fed together in one step; its masks are computed while the model runs. With guidance a second
prompt runs beside the first. It does not know parameters beyond those of the text's end.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine.loaded import LoadedModel
from ingot.kvcache import Sequence as KvSequence
from ingot.sampling import Choice, Choosing, StopChecker, guide
from ingot.sampling import FinishReason as TextEnd

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# The model ended the text, or what was asked for did; max_tokens, the context's end, the time.
FinishReason = Literal["stop", "length", "context", "time"]
Progress = Callable[[int, int], None]  # prompt tokens done, prompt tokens in all

Ints = NDArray[np.int32]
Logits = NDArray[np.float32]
_NONE = np.empty(0, np.int32)
_REASONS: Mapping[TextEnd, FinishReason] = {
    TextEnd.STOP: "stop",
    TextEnd.LENGTH: "length",
    TextEnd.TIME: "time",
}


@dataclass(frozen=True, slots=True)
class Guidance:
    """A second prompt, and how far to go away from it; at 1 it changes nothing."""

    prompt: Ints
    scale: float


class Writer:
    """What is known of a text while it is written, and how it is written."""

    def __init__(
        self,
        model: LoadedModel,
        prompt: Ints,
        choosing: Choosing,
        stop: StopChecker,
        *,
        max_tokens: int | None = None,
        guidance: Guidance | None = None,
        ahead: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """`ahead` prepares the chain in a thread while the model runs."""
        self.prompt = prompt
        self.choices: list[Choice] = []
        self.finish_reason: FinishReason | None = None
        self.stopped_by: str | int | None = None
        self.prompt_seconds = 0.0
        self.steps = 0
        self.generation_seconds = 0.0
        self._model = model
        self._choosing = choosing
        self._stop = stop
        self._max_tokens = max_tokens
        self._guidance = guidance
        self._ahead = ahead
        self._progress = progress

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens written so far."""
        return tuple(choice.token for choice in self.choices)

    def write(self) -> Generator[str]:
        """The pieces of the text; closing it frees its part of the cache."""
        prompts = [self.prompt, *([self._guidance.prompt] if self._guidance else [])]
        sequences = [self._model.sequence() for _ in prompts]
        pool = _one_thread() if self._ahead else None
        try:
            rows = self._run_prompts(sequences, prompts)
            while self._has_room():
                chosen = [self._choose(rows)]
                for choice in chosen:  # which grows while there is no choice
                    if piece := self._take(choice):
                        yield piece
                    if not self._has_room():
                        break
                    if choice is chosen[-1]:
                        chosen += self._forced()
                if self.finish_reason is None:
                    rows = self._run_tokens(sequences, [c.token for c in chosen], pool)
            if self.finish_reason == "context" and (rest := self._stop.finish()):
                yield rest
        finally:
            for sequence in sequences:
                sequence.close()
            if pool is not None:
                pool.shutdown()

    def _has_room(self) -> bool:
        """Whether one more token may be written; if not, that is why the text ends."""
        if self.finish_reason is None:
            if self._max_tokens == 0:
                self.finish_reason = "length"
            elif len(self.prompt) + len(self.choices) == self._model.context:
                self.finish_reason = "context"
        return self.finish_reason is None

    def _choose(self, rows: Logits) -> Choice:
        started = time.perf_counter()
        row = rows[:1]
        if self._guidance:
            guide(row[0], rows[1], self._guidance.scale)
        result = self._choosing.choose(row)
        self.generation_seconds += time.perf_counter() - started
        return result

    def _take(self, choice: Choice) -> str:
        """Add a token to the text: the piece that may be shown now."""
        taken = self._stop.tokens
        piece = self._stop.push(choice.token)
        if self._stop.tokens > taken:  # not one that ended the text
            self.choices.append(choice)
            self._choosing.chain.accept(choice.token)
        text = piece.text
        if piece.finished is not None:
            self.finish_reason = _REASONS[piece.finished]
            self.stopped_by = piece.stopped_by
        elif self._choosing.chain.is_complete:
            self.finish_reason = "stop"
            text += self._stop.finish()
        return text

    def _forced(self) -> list[Choice]:
        """The next tokens, where there is no choice; none if their probabilities are wanted."""
        if not self._ahead or self._choosing.logprobs:
            return []
        return [Choice(token) for token in self._choosing.chain.forced_tokens()]

    def _run_prompts(self, sequences: Sequence[KvSequence], prompts: Sequence[Ints]) -> Logits:
        started = time.perf_counter()
        rows = [self._run_prompt(*pair) for pair in zip(sequences, prompts, strict=True)]
        self.prompt_seconds = time.perf_counter() - started
        return np.concatenate(rows)

    def _run_prompt(self, sequence: KvSequence, prompt: Ints) -> Logits:
        size, total = self._model.step_tokens, len(prompt)
        tell = self._progress if prompt is self.prompt else None
        for start in range(0, total, size):
            if tell:
                tell(start, total)
            chunk = prompt[start : start + size]
            done = start + len(chunk)
            wanted = np.array([len(chunk) - 1], np.int32) if done == total else _NONE
            logits = self._model.step([sequence], [chunk], wanted, ExecutionPhase.PROMPT)
        if tell:
            tell(total, total)
        return logits

    def _run_tokens(
        self,
        sequences: Sequence[KvSequence],
        tokens: Sequence[int],
        pool: "ThreadPoolExecutor | None",
    ) -> Logits:
        started = time.perf_counter()
        prepared = pool.submit(self._choosing.chain.prepare) if pool else None
        ids = np.array(tokens, np.int32)
        size = len(ids)
        phase = ExecutionPhase.GENERATION if size == 1 else ExecutionPhase.PROMPT
        last = np.arange(1, len(sequences) + 1, dtype=np.int32) * size - 1
        rows = self._model.step(sequences, [ids] * len(sequences), last, phase)
        if prepared:
            prepared.result()
        self.steps += 1
        self.generation_seconds += time.perf_counter() - started
        return rows


def _one_thread() -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (imports logging, too)

    return ThreadPoolExecutor(1)
