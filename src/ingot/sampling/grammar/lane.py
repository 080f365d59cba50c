"""Lane: a thread and a process that compile grammars, one after the other.

A grammar is tried in the process first. Only what compiles there within its limits is compiled
again in this one, in the lane's thread: llguidance does that without the interpreter lock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING

from ingot.errors import GrammarError, QueueFullError
from ingot.sampling.grammar.source import body_of, frame_of, joined
from ingot.sampling.grammar.spec import Grammar, GrammarKind
from ingot.sampling.grammar.trial_process import OvertimeError, TrialProcess
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

if TYPE_CHECKING:
    from concurrent.futures import Future

    from llguidance import LLMatcher


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Compiled:
    """A grammar that texts can follow."""

    matcher: "LLMatcher"  # at the start of a text
    memory: int  # bytes, about


@dataclass(slots=True)
class Job:
    """A grammar to compile, those who wait for it, and whom to tell."""

    grammar: Grammar
    done: "Callable[[Job, Compiled | Exception], None]"
    waiting: "list[Future[Compiled]]" = field(default_factory=list)


class Lane:
    """Compiles grammars in the order they come."""

    def __init__(
        self, vocabulary: GrammarVocabulary, trial: TrialProcess, slower: "Lane | None" = None
    ) -> None:
        """`slower` takes what takes more time than there is here."""
        self._vocabulary = vocabulary
        self._trial = trial
        self._slower = slower
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = Lock()  # of the next two
        self._current: Job | None = None
        self._thread: Thread | None = None

    def put(self, job: Job) -> None:
        """Compile a grammar when its turn comes."""
        with self._lock:
            if self._thread is None:
                thread = Thread(target=self._run, name="ingot-grammars", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system has no more of them
                    raise QueueFullError(f"no grammar can be compiled now: {error}") from None
                self._thread = thread
        self._queue.put(job)

    def drop(self, job: Job) -> None:
        """Stop a job for which nobody waits any more."""
        with self._lock:
            if self._current is job:
                self._trial.kill()

    def close(self) -> None:
        """End the thread and the process."""
        self._queue.put(None)
        self._trial.kill()
        if self._thread not in (None, current_thread()):
            self._thread.join()

    def _run(self) -> None:
        try:
            while (job := self._queue.get()) is not None:
                self._do(job)
                del job  # it knows the compiler, which may go when nobody else does
        finally:
            self._trial.close()

    def _do(self, job: Job) -> None:
        with self._lock:
            self._current = job if job.waiting else None
        if not job.waiting:
            return
        result: Compiled | Exception
        try:
            result = self._compile(job.grammar)
        except Exception as error:  # whatever it is, somebody waits for an answer
            result = error
        finally:
            with self._lock:
                self._current = None
        if isinstance(result, OvertimeError) and self._slower is not None:
            try:
                self._slower.put(job)
                return
            except QueueFullError as error:
                result = error
        if isinstance(result, GrammarError):
            result = GrammarError(f"the {job.grammar.kind} cannot be honoured: {result}")
        job.done(job, result)

    def _compile(self, grammar: Grammar) -> Compiled:
        from llguidance import LLMatcher  # noqa: PLC0415 (0.1 s)

        text = joined(frame_of(grammar, self._vocabulary), body_of(grammar))
        self._trial.start()
        vocabulary = self._vocabulary.native  # both get ready at the same time
        tried = self._trial.run(text, gbnf=grammar.kind is GrammarKind.GBNF)
        matcher = LLMatcher(vocabulary, tried.text, log_level=0)
        if matcher.is_error():
            raise GrammarError(matcher.get_error().strip())
        return Compiled(matcher, tried.memory)
