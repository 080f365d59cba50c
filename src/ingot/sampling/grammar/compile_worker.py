"""CompileWorker: a thread and a process that compile grammars, one after the other.

A grammar is tried in the process first. Only if it compiles there within the limits, it is
compiled again in this process, in the thread of the worker: llguidance releases the GIL for that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING

from ingot.errors import GrammarError, ThreadLimitError
from ingot.sampling.grammar.lark_source import body_of, frame_of, joined
from ingot.sampling.grammar.spec import Grammar, GrammarKind
from ingot.sampling.grammar.trial_process import OvertimeError, TrialProcess
from ingot.sampling.grammar.vocabulary import GrammarVocabulary

if TYPE_CHECKING:
    from concurrent.futures import Future

    from llguidance import LLMatcher


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompiledGrammar:
    """A grammar that is ready to give token masks."""

    matcher: "LLMatcher"  # at the start of a text
    memory: int  # bytes, approximately


@dataclass(slots=True)
class CompileJob:
    """A grammar to compile, what to call when it is done, and the futures of those who wait."""

    grammar: Grammar
    done: "Callable[[CompileJob, CompiledGrammar | Exception], None]"
    waiting: "list[Future[CompiledGrammar]]" = field(default_factory=list)


class CompileWorker:
    """Compiles grammars in the order they come."""

    def __init__(
        self,
        vocabulary: GrammarVocabulary,
        trial: TrialProcess,
        slower: "CompileWorker | None" = None,
    ) -> None:
        """`slower`: the worker that takes over grammars that exceed the time limit of this one."""
        self._vocabulary = vocabulary
        self._trial = trial
        self._slower = slower
        self._queue: SimpleQueue[CompileJob | None] = SimpleQueue()
        self._lock = Lock()  # guards the next two
        self._current: CompileJob | None = None
        self._thread: Thread | None = None

    def put(self, job: CompileJob) -> None:
        """Compile a grammar when its turn comes."""
        with self._lock:
            if self._thread is None:
                thread = Thread(target=self._run, name="ingot-grammars", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise ThreadLimitError(
                        f"grammars cannot be compiled now ({error}): end other threads or "
                        "processes, or raise the limit (ulimit -u, or pids of the container)"
                    ) from None
                self._thread = thread
        self._queue.put(job)

    def drop(self, job: CompileJob) -> None:
        """Stop a job that nobody waits for any more."""
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
                del job  # it refers to the compiler, which must stay collectable
        finally:
            self._trial.close()

    def _do(self, job: CompileJob) -> None:
        with self._lock:
            self._current = job if job.waiting else None
        if not job.waiting:
            return
        result: CompiledGrammar | Exception
        try:
            result = self._compile(job)
        except Exception as error:  # whatever it is, the callers wait for a result
            result = error
        finally:
            with self._lock:
                self._current = None
        if isinstance(result, OvertimeError) and self._slower is not None:
            try:
                self._slower.put(job)
                return
            except ThreadLimitError as error:
                result = error
        if isinstance(result, GrammarError):
            result = GrammarError(f"the {job.grammar.kind} grammar cannot be used: {result}")
        job.done(job, result)

    def _compile(self, job: CompileJob) -> CompiledGrammar:
        from llguidance import LLMatcher  # noqa: PLC0415 (0.1 s)

        grammar = job.grammar
        text = joined(frame_of(grammar, self._vocabulary), body_of(grammar))
        self._trial.start()
        vocabulary = self._vocabulary.native  # built while the process starts
        tried = self._trial.run(
            text, gbnf=grammar.kind is GrammarKind.GBNF, is_wanted=lambda: bool(job.waiting)
        )
        matcher = LLMatcher(vocabulary, tried.text, log_level=0)
        if matcher.is_error():
            raise GrammarError(matcher.get_error().strip())
        return CompiledGrammar(matcher, tried.memory)
