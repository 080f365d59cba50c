"""TrialProcess: the process that tries grammars, seen from the one that serves.

Comes in: a text that llguidance reads. Goes out: the text to compile, now that it is known what
that takes, or an error that says which limit it went past. The process starts with the first
grammar and stays. One thread uses it; any thread may kill it.
"""

import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from ingot.errors import GrammarError, QueueFullError
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

_PROGRAM = Path(__file__).with_name("trial.py")
_START = 60.0  # seconds that the process may take to start, on a machine that does other things
_OVERTIME = (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU)


class OvertimeError(GrammarError):
    """A grammar took more time than it may."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A grammar that can be compiled within the limits."""

    text: str  # as llguidance reads it
    memory: int  # bytes that it took, about


class TrialProcess:
    """Tries one grammar at a time."""

    def __init__(self, vocabulary: GrammarVocabulary, seconds: float, patience: float, memory: int):
        """`seconds` are of CPU time; the clock may show `patience` times as many."""
        self._vocabulary = vocabulary
        self._seconds = seconds
        self._limits = {"seconds": seconds, "patience": patience * seconds, "memory": memory}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()  # of the process's end
        self._killed = False

    def start(self) -> None:
        """Have the process get ready, unless it is."""
        if self._process is None or self._killed or self._process.poll() is not None:
            self.close()
            with self._lasting(_START):
                self._start()

    def run(self, text: str, *, gbnf: bool) -> Tried:
        """Try a grammar."""
        self.start()
        with self._lasting(_START + self._limits["patience"]):
            answer = self._ask({"text": text, "gbnf": gbnf, **self._limits})
        if "text" in answer:
            return Tried(answer["text"], answer["grown"])
        if "refused" in answer:
            raise GrammarError(answer["refused"])
        raise self._went_too_far(-answer["ended"])

    def kill(self) -> None:
        """End the process and what it is trying, in any thread."""
        with self._lock:
            if self._process is not None:
                self._killed = True
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process; the next grammar starts another one."""
        self.kill()
        with self._lock:
            process, self._process, self._killed = self._process, None, False
            if process is not None:
                process.wait()
        for pipe in (process.stdin, process.stdout) if process else ():
            with suppress(OSError):  # what nobody has read
                pipe.close()  # type: ignore[union-attr]

    @contextmanager
    def _lasting(self, seconds: float) -> Iterator[None]:
        """Do something with the process that must not take longer."""
        timer = Timer(seconds, self.kill)
        timer.daemon = True
        try:
            timer.start()
            yield
        except (OSError, EOFError, ValueError, TypeError, RuntimeError) as error:
            if isinstance(error, GrammarError):
                raise
            self.close()
            reason = str(error) or type(error).__name__
            raise QueueFullError(
                f"no grammar can be compiled now, the process for it has failed ({reason}); "
                "try again later"
            ) from None
        finally:
            timer.cancel()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None, "it was started"
        assert process.stdin is not None
        assert process.stdout is not None
        marshal.dump(message, process.stdin)
        process.stdin.flush()
        answer: dict[str, Any] = marshal.load(process.stdout)
        return answer

    def _start(self) -> None:
        vocabulary = self._vocabulary.as_lists()
        process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # a Ctrl-C is for us; and its forks die with it
        )
        with self._lock:
            self._process = process
        assert process.stdin is not None
        marshal.dump((sys.path, *vocabulary), process.stdin)

    def _went_too_far(self, ended_by: int) -> GrammarError:
        if ended_by in _OVERTIME:
            return OvertimeError(f"it takes more than {self._seconds:g} s to compile; simplify it")
        if ended_by == signal.SIGABRT:
            memory = self._limits["memory"] // (1 << 20)
            return GrammarError(f"it takes more than {memory:g} MB to compile; simplify it")
        return GrammarError("it is nested too deeply to be compiled; simplify it")
