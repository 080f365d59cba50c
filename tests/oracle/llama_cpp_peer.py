"""llama.cpp as an oracle for tokenizers: texts in, its ids out.

The peer runs in a separate process (llama_cpp_worker.py), next to ours, so that a text on which
it aborts is a finding about the peer and not the end of the test run.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

WORKER = Path(__file__).with_name("llama_cpp_worker.py")
UNKNOWN, CONTROL, USER_DEFINED = 1 << 0, 1 << 3, 1 << 4


@dataclass(frozen=True, slots=True)
class Request:
    """One text and how it is to be read."""

    text: bytes
    add_special: bool = False
    parse_special: bool = False


@dataclass(frozen=True, slots=True)
class PeerVocabulary:
    """What llama.cpp says about every token of a vocabulary."""

    kind: int
    bos: int
    eos: int
    texts: list[bytes]  # as the file has them
    attributes: list[int]
    end_of_generation: list[int]
    pieces: list[bytes]  # the bytes each token stands for

    def special(self) -> list[int]:
        """Return the tokens whose text is recognised as a whole."""
        wanted = UNKNOWN | CONTROL | USER_DEFINED
        return [token for token, bits in enumerate(self.attributes) if bits & wanted]


def describe(model: Path) -> PeerVocabulary:
    done = subprocess.run(
        [sys.executable, WORKER, "describe", model],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return PeerVocabulary(**pickle.loads(done.stdout))


class PeerRun:
    """llama.cpp reading texts in the background; `ids()` waits for it, leaving it ends it.

    The ids of a text on which the peer dies are None; it is started again after that text.
    """

    def __init__(self, jobs: Sequence[tuple[Path, Sequence[Request]]], folder: Path) -> None:
        self._count = sum(len(requests) for _, requests in jobs)
        self._jobs = folder / "jobs.pickle"
        self._ids = folder / "ids"
        self._jobs.write_bytes(
            pickle.dumps(
                [
                    (str(model), [(r.text, r.add_special, r.parse_special) for r in requests])
                    for model, requests in jobs
                ]
            )
        )
        self._start(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()

    def _start(self, first: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, WORKER, "tokenize", self._jobs, str(first), self._ids],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )

    def ids(self) -> list[list[int] | None]:
        found: list[list[int] | None] = []
        while True:
            _, error = self._process.communicate()
            if self._process.returncode > 0:
                raise RuntimeError(error.decode(errors="replace"))
            found += split_counted(self._ids.read_bytes())
            if self._process.returncode < 0:
                found.append(None)
            if len(found) == self._count:
                return found
            self._start(len(found))


def split_counted(data: bytes) -> list[list[int] | None]:
    """Split a stream of (count, ids...) into its lists."""
    numbers = np.frombuffer(data, dtype="<i4").tolist()
    lists: list[list[int] | None] = []
    at = 0
    while at < len(numbers):
        end = at + 1 + numbers[at]
        lists.append(numbers[at + 1 : end])
        at = end
    return lists
