"""What methods of `LLM` return, and how an engine gives it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Floats, Ints
from ingot.bar import Bar
from ingot.engine import Completion, InferenceEngine, Prompt, Request
from ingot.engine.adapters import AdapterChoice
from ingot.engine.batches import submit_all
from ingot.errors import SamplingError
from ingot.sampling import SamplingParams, logprobs_of


@dataclass(frozen=True, slots=True)
class Score:
    """The tokens of a text and their log-probabilities."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of the last tokens; the first token of all has none

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability."""
        return exp(-sum(self.logprobs) / len(self.logprobs)) if self.logprobs else 1.0


@dataclass(frozen=True, slots=True)
class BeamText:
    """One result of a beam search."""

    text: str
    token_ids: tuple[int, ...]
    logprob: float  # of the whole text, its end included if it ended


def whole(request: Request) -> Completion:
    """Wait for a completion; cancel the request if the wait is interrupted."""
    try:
        return request.result()
    except BaseException:
        request.cancel()
        raise


def with_schema(
    params: SamplingParams, schema: type | Mapping[str, object]
) -> tuple[SamplingParams, Callable[[str], Any]]:
    """Parameters for a text that follows a schema, and the function that parses it."""
    from ingot.sampling import grammar_of, parse_as  # noqa: PLC0415 (few need it)

    if params.grammar is not None:
        raise SamplingError("schema", schema, "left out if there is a grammar")
    return replace(params, grammar=grammar_of(schema)), partial(parse_as, schema)


@contextmanager
def shown_batch(
    prompts: Iterable[Prompt], submit: Callable[[Prompt], Request], *, shown: bool
) -> Iterator[Iterator[Request]]:
    """The requests of many prompts, in their order; a bar shows how many were waited for."""
    asked = list(prompts)
    with (
        Bar("writing", "texts", shown=shown) as bar,
        closing(submit_all(asked, submit)) as requests,
    ):

        def counted() -> Iterator[Request]:
            for number, request in enumerate(requests):
                bar(number, len(asked))
                yield request
            bar(len(asked), len(asked))

        yield counted()


def beams_of(
    engine: InferenceEngine,
    ids: Ints,
    width: int,
    max_tokens: int,
    *,
    length_penalty: float,
    adapter: AdapterChoice | None,
) -> list[BeamText]:
    """The texts of a beam search, best first."""
    from ingot.sampling import BeamSearch  # noqa: PLC0415 (few need it)

    if width > engine.max_running:
        raise SamplingError("width", width, f"at most {engine.max_running}")
    ends = engine.tokenizer.eog_ids
    search = BeamSearch(width, ends, max_tokens=max_tokens, length_penalty=length_penalty)
    engine.run_beams(ids, search, adapter=adapter)
    return [
        BeamText(engine.tokenizer.decode(beam.tokens), beam.tokens, beam.logprob)
        for beam in search.best()
    ]


def logits_of(engine: InferenceEngine, ids: Ints, adapter: AdapterChoice | None = None) -> Floats:
    """Logits [tokens, vocabulary] for the token after each."""
    rows = np.empty((len(ids), engine.model.graph.logits.width), np.float32)

    def take(start: int, piece: Floats) -> None:
        rows[start : start + len(piece)] = piece

    engine.read_rows(ids, take, adapter=adapter)
    return rows


def score_of(
    engine: InferenceEngine, ids: Ints, first: int, adapter: AdapterChoice | None = None
) -> Score:
    """The score of a text, from token number `first` on."""
    if not 1 <= first <= len(ids):
        raise SamplingError("first", first, f"from 1 to {len(ids)}, the length of the text")
    found: list[NDArray[np.float64]] = []

    def take(start: int, rows: Floats) -> None:
        following = ids[start + 1 : start + 1 + len(rows)]
        found.append(logprobs_of(rows, following, engine.model.threads))

    if first < len(ids):
        engine.read_rows(ids[:-1], take, first=first - 1, adapter=adapter)
    logprobs = np.concatenate(found).tolist() if found else []
    return Score(tuple(ids.tolist()), tuple(logprobs))
