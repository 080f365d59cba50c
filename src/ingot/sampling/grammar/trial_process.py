"""TrialProcess: a handle of the process that tries grammars (trial_main.py).

In: a text that llguidance reads. Out: the text to compile and the memory it needs, or an error
that names the limit it exceeded. The process starts with the first grammar and stays. One thread
uses it; any thread may kill it.
"""

import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING

from ingot.errors import GrammarError, QueueFullError
from ingot.machine import end_group, new_group
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

if TYPE_CHECKING:
    from ingot.sampling.grammar.trial_main import TrialRequest, TrialResult

_PROGRAM = Path(__file__).with_name("trial_main.py")
_START = 60.0  # seconds that the process may take to start on a busy machine
# Signals by which the kernel ends a fork; without forks, the process ends itself with status 1.
_OVERTIME = (-1,) if sys.platform == "win32" else (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU)


class OvertimeError(GrammarError):
    """A grammar exceeded its time limit."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A grammar that compiles within the limits."""

    text: str  # as llguidance reads it
    memory: int  # bytes that it took, approximately


class TrialProcess:
    """Tries one grammar at a time in a child process."""

    def __init__(self, vocabulary: GrammarVocabulary, seconds: float, patience: float, memory: int):
        """`seconds` of CPU time; the wall-clock limit is `patience` times that."""
        self._vocabulary = vocabulary
        self._seconds = seconds
        self._patience, self._memory = patience * seconds, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()  # guards the end of the process
        self._killed = False

    def start(self) -> None:
        """Start the process if it is not running."""
        if self._process is None or self._killed or self._process.poll() is not None:
            self.close()
            with self._lasting(_START):
                self._start()

    def run(self, text: str, *, gbnf: bool, is_wanted: Callable[[], bool]) -> Tried:
        """Try a grammar; `GrammarError` if it is refused, exceeds a limit or is not wanted."""
        self.start()
        if not is_wanted():  # a kill before this line may have ended another process than this one
            raise GrammarError("nobody waits for it any more")
        request: TrialRequest = {
            "text": text,
            "gbnf": gbnf,
            "seconds": self._seconds,
            "patience": self._patience,
            "memory": self._memory,
        }
        with self._lasting(_START + self._patience):
            answer = self._ask(request)
        if "text" in answer:
            return Tried(answer["text"], answer["grown"])
        if "refused" in answer:
            raise GrammarError(answer["refused"])
        raise self._exceeded(-answer["ended"])

    def kill(self) -> None:
        """Kill the process and its forks; may be called in any thread."""
        with self._lock:
            if self._process is not None:
                self._killed = True
                end_group(self._process.pid, force=True)

    def close(self) -> None:
        """End the process; the next grammar starts another one."""
        self.kill()
        with self._lock:
            process, self._process, self._killed = self._process, None, False
            if process is not None:
                process.wait()
        for pipe in (process.stdin, process.stdout) if process else ():
            with suppress(OSError):  # data that was not read
                pipe.close()  # type: ignore[union-attr]

    @contextmanager
    def _lasting(self, seconds: float) -> Iterator[None]:
        """Kill the process if the body takes longer than this; report its failures."""
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
                f"grammars cannot be compiled now because their process failed ({reason}); "
                "try again later"
            ) from None
        finally:
            timer.cancel()

    def _ask(self, request: "TrialRequest") -> "TrialResult":
        process = self._process
        assert process is not None, "it was started"
        assert process.stdin is not None
        assert process.stdout is not None
        marshal.dump(dict(request), process.stdin)
        process.stdin.flush()
        try:
            answer: TrialResult = marshal.load(process.stdout)
        except EOFError:
            if sys.platform != "win32" or self._killed:
                raise
            return {"ended": process.wait()}  # by the grammar, because there was no fork
        return answer

    def _start(self) -> None:
        vocabulary = self._vocabulary.as_lists()
        process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            **new_group(),  # Ctrl-C does not reach it; killing the group kills its forks
        )
        with self._lock:
            self._process = process
        assert process.stdin is not None
        marshal.dump((sys.path, *vocabulary), process.stdin)

    def _exceeded(self, ended_by: int) -> GrammarError:
        if ended_by in _OVERTIME:
            return OvertimeError(f"it takes more than {self._seconds:g} s to compile; simplify it")
        if ended_by == signal.SIGABRT:
            return GrammarError(
                f"it takes more than {self._memory >> 20} MB to compile; simplify it"
            )
        return GrammarError("it is nested too deeply to compile; simplify it")
