"""Time prefill and decode of arbitrary tokens: what `ingot bench` measures."""

import time

import numpy as np

from ingot.arrays import Ints
from ingot.backends.batch import ExecutionPhase
from ingot.engine.model.loaded_model import LoadedModel
from ingot.kvcache import SequenceBlocks


def timed_tokens(
    model: LoadedModel, *, prompt: int, generated: int, depth: int = 0, sequences: int = 1
) -> float:
    """Seconds for a prompt and then single tokens of every sequence, after `depth` tokens.

    Prefill runs one sequence after the other; decode takes one step for all.
    """
    running = [model.sequence() for _ in range(sequences)]
    try:
        for sequence in running:
            _read(model, sequence, depth)
        started = time.perf_counter()
        for sequence in running:
            _read(model, sequence, prompt)
        outputs = np.arange(sequences, dtype=np.int32)
        for index in range(generated):
            token = _tokens(model, index, 1)
            model.step(running, [token] * sequences, outputs, ExecutionPhase.GENERATION)
        return time.perf_counter() - started
    finally:
        for sequence in running:
            sequence.close()


def _read(model: LoadedModel, sequence: SequenceBlocks, count: int) -> None:
    for start in range(0, count, model.step_tokens):
        chunk = _tokens(model, sequence.length, min(model.step_tokens, count - start))
        last = np.array([len(chunk) - 1], np.int32)
        model.step([sequence], [chunk], last, ExecutionPhase.PROMPT)


def _tokens(model: LoadedModel, first: int, count: int) -> Ints:
    """Ids from all over the vocabulary, the same every time."""
    ids = (np.arange(first, first + count) * 7919 + 13) % model.graph.vocabulary_size
    return ids.astype(np.int32)
