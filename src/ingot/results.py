"""What methods of `LLM` return, and how an engine gives it."""

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from ingot.arrays import Floats, Ints
from ingot.engine import Completion, InferenceEngine, Request
from ingot.engine.adapters import AdapterChoice
from ingot.errors import SamplingError
from ingot.sampling import logprobs_of


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
