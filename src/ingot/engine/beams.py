"""Beam search with a model: texts that share a beginning share its place in the cache."""

import numpy as np

from ingot.backends.batch import ExecutionPhase
from ingot.engine.loaded import Ints, LoadedModel
from ingot.kvcache import Sequence as KvSequence
from ingot.sampling import BeamSearch
from ingot.sampling.beam import Move


def run_beams(model: LoadedModel, prompt: Ints, search: BeamSearch) -> None:
    """Take a search to its end, or to the end of the context."""
    sequences = [model.sequence()]
    try:
        for start in range(0, len(prompt), model.step_tokens):
            chunk = prompt[start : start + model.step_tokens]
            last = np.array([len(chunk) - 1], np.int32)
            rows = model.step(sequences, [chunk], last, ExecutionPhase.PROMPT)
        while not search.done:
            moves = search.step(rows, model.threads)
            if search.done or sequences[0].length == model.context:
                return
            sequences = _follow(model, sequences, moves)
            ids = [np.array([move.token], np.int32) for move in moves]
            outputs = np.arange(len(moves), dtype=np.int32)
            rows = model.step(sequences, ids, outputs, ExecutionPhase.GENERATION)
    finally:
        for sequence in sequences:
            sequence.close()


def _follow(model: LoadedModel, sequences: list[KvSequence], moves: list[Move]) -> list[KvSequence]:
    """The sequence of each move: its parent's, or a fork where others go on from it, too."""
    for number in set(range(len(sequences))) - {move.parent for move in moves}:
        sequences[number].close()
    following: list[KvSequence] = []
    forks: list[KvSequence] = []
    used: set[int] = set()
    try:
        for move in moves:
            sequence = sequences[move.parent]
            if move.parent in used:
                sequence = model.fork(sequence)
                forks.append(sequence)
            used.add(move.parent)
            following.append(sequence)
    except BaseException:
        for fork in forks:
            fork.close()
        raise
    return following
