"""LLM: a model file, ready to use from Python.

from ingot import LLM
llm = LLM("model.gguf")
print(llm.generate("The capital of France is", max_tokens=16).text)
for piece in llm.stream("Once upon a time"):
    print(piece, end="")
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ingot.backends.batch import ExecutionPhase
from ingot.engine import Completion, Generation, LoadedModel, Mode, Progress, Prompt
from ingot.errors import SamplingError
from ingot.sampling import ChainBuilder, Grammar, SamplingParams, logprobs_of
from ingot.sampling.params import ALIASES
from ingot.tokenizer import Tokenizer

_PIECE_BYTES = 128 << 20  # of logits at a time: 127 positions of a vocabulary of 262,144 tokens


_DEFAULT_TOKENS = 128  # written at most, where nothing is said about it

Schema = type | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Score:
    """The tokens of a text and how likely the model finds each; nothing is known of the first."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of all tokens but the first

    @property
    def perplexity(self) -> float:
        """exp of the mean surprise."""
        return float(np.exp(-np.mean(self.logprobs))) if self.logprobs else 1.0


@dataclass(frozen=True, slots=True)
class BeamText:
    """One of the texts that a beam search found."""

    text: str
    token_ids: tuple[int, ...]
    logprob: float  # of the whole text, its end included if it ended


class LLM:
    """A model on the CPU or a GPU.

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
        device: str = "cpu",
    ) -> None:
        """Open a model; all that can be wrong with it is said here.

        `threads`: default INGOT_THREADS or the cores this process may use. `context`: tokens
        to make room for, default what the model allows, at most 8192. `kv_type`: how keys and
        values are stored: f32, f16, bf16, q8_0 or q4_0. `weights`: "map" uses them where they
        are in the file, "lock" also keeps them in memory, "read" copies them. `device`: "cpu",
        "cuda" (a GPU of NVIDIA or AMD; needs `ingot[gpu]`) or "auto", a GPU if there is one.
        """
        self._model = LoadedModel(
            path,
            threads=threads,
            context=context,
            kv_type=kv_type,
            weights=weights,
            device=device,
        )
        self.path = self._model.file.path
        self.model = self._model.file
        self.graph = self._model.graph
        self.context = self._model.context
        self.threads = self._model.threads
        self.tokenizer = Tokenizer.from_metadata(self.model.metadata)
        self._chains = ChainBuilder(self.tokenizer)
        self._turn = Lock()

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        schema: Schema | None = None,
        negative_prompt: Prompt | None = None,
        cfg_scale: float = 1.0,
        heal: bool = False,
        **fields: Any,
    ) -> Completion:
        """Continue a prompt (text or token ids) until the model or the parameters end it.

        `params`, or fields of `SamplingParams` by name: `max_tokens` (128 if neither is given),
        `temperature`, `seed`, `stop`, ... `schema`: a JSON schema, a pydantic model or a
        dataclass that the text must follow; `parsed` is what it says then. `negative_prompt` and
        `cfg_scale`: guidance away from a second prompt. `heal`: let the text go on from within
        the prompt's last token.
        """
        made = _params(params, fields, schema)
        mode = Mode(negative_prompt, cfg_scale, heal)
        with self._turn:
            done = self._generation(prompt, made, mode).complete()
        if schema is None or done.finish_reason != "stop":
            return done
        return replace(done, parsed=_parsed(schema, done.text))

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        negative_prompt: Prompt | None = None,
        cfg_scale: float = 1.0,
        heal: bool = False,
        progress: Progress | None = None,
        **fields: Any,
    ) -> Generation:
        """The same, piece by piece as it is written.

        `progress` is told how many tokens of the prompt are done, and of how many.
        """
        mode = Mode(negative_prompt, cfg_scale, heal)
        return self._generation(prompt, _params(params, fields), mode, progress)

    def _generation(
        self, prompt: Prompt, params: SamplingParams, mode: Mode, progress: Progress | None = None
    ) -> Generation:
        return Generation(self._model, self.tokenizer, self._chains, prompt, params, mode, progress)

    def beam_search(
        self,
        prompt: Prompt,
        width: int = 4,
        *,
        max_tokens: int = _DEFAULT_TOKENS,
        length_penalty: float = 1.0,
    ) -> list[BeamText]:
        """The likeliest continuations of a prompt that a search in `width` beams finds.

        They are ordered by log-probability / length ** length_penalty, best first.
        """
        from ingot.engine.beams import run_beams  # noqa: PLC0415 (few need it)
        from ingot.sampling import BeamSearch  # noqa: PLC0415

        ids = self._model.check_ids(self._encode(prompt))
        search = BeamSearch(
            width, self.tokenizer.eog_ids, max_tokens=max_tokens, length_penalty=length_penalty
        )
        with self._turn:
            run_beams(self._model, ids, search)
        return [
            BeamText(self.tokenizer.decode(beam.tokens), beam.tokens, beam.logprob)
            for beam in search.best()
        ]

    def score(self, prompt: Prompt) -> Score:
        """The log-probability of every token of a text, in one pass."""
        ids = self._model.check_ids(self._encode(prompt))
        found = []
        with self._turn:
            for start, rows in self.logit_pieces(ids):
                known = rows[: len(ids) - 1 - start]  # nothing is known of what follows the last
                following = ids[start + 1 : start + 1 + len(known)]
                found.append(logprobs_of(known, following, self.threads))
        return Score(tuple(ids.tolist()), tuple(np.concatenate(found).tolist()))

    def _encode(self, prompt: Prompt) -> Sequence[int] | NDArray[np.integer]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

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


def _params(
    params: SamplingParams | None, fields: Mapping[str, Any], schema: Schema | None = None
) -> SamplingParams:
    """The parameters of a request: given as such, or by their names."""
    if params is None:
        params = SamplingParams.from_names(fields)
        if not any(ALIASES.get(name, name) == "max_tokens" for name in fields):
            params = replace(params, max_tokens=max(_DEFAULT_TOKENS, params.min_tokens))
    elif fields:
        raise SamplingError("params", params, f"left out where {min(fields)} is given by name")
    if schema is None:
        return params
    if params.grammar is not None:
        raise SamplingError("schema", schema, "left out where a grammar is given")
    return replace(params, grammar=_grammar(schema))


def _grammar(schema: Schema) -> Grammar:
    if isinstance(schema, Mapping):
        return Grammar.json_schema(schema)
    from ingot.sampling import grammar_of  # noqa: PLC0415 (few need it)

    return grammar_of(schema)


def _parsed(schema: Schema, text: str) -> object:
    if isinstance(schema, Mapping):
        return json.loads(text)
    from ingot.sampling import parse_as  # noqa: PLC0415 (few need it)

    return parse_as(schema, text)
