"""llama.cpp's samplers as an oracle: logits and a chain in, the candidates it leaves out.

The peer runs in a separate process (llama_cpp_sampling_worker.py), so that what it aborts on
is a finding about the peer and not the end of the test run.
"""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORKER = Path(__file__).with_name("llama_cpp_sampling_worker.py")
Step = tuple[object, ...]  # a sampler's name and its arguments


@dataclass(frozen=True, slots=True)
class Job:
    """Logits, the samplers to run over them, and the tokens they have seen before."""

    logits: NDArray[np.float32]
    steps: tuple[Step, ...]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """The candidates left: ids and logits, in llama.cpp's order."""

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reading:
    """A GBNF grammar and texts, as token ids, that it should have."""

    grammar: str
    texts: tuple[tuple[int, ...], ...]


def run(model: Path, jobs: Sequence[Job]) -> list[Left]:
    """Let llama.cpp work on all jobs."""
    plain = [(job.logits, job.steps, job.tokens) for job in jobs]
    return [Left(*left) for left in _ask(model, ("apply", plain))]


def reads(model: Path, readings: Sequence[Reading]) -> list[list[bool]]:
    """Whether llama.cpp's own grammar engine reads texts to their end."""
    return _ask(model, ("read", [(reading.grammar, reading.texts) for reading in readings]))


def _ask(model: Path, question: tuple[str, list[object]]) -> list:
    done = subprocess.run(
        [sys.executable, WORKER, model],
        input=pickle.dumps(question),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    return pickle.loads(done.stdout)
